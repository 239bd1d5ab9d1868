package published

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// streamFrames is the length of the streams whose bandwidth is computed: long
// enough that the first frames, which find an idle system, do not count.
const streamFrames = 100

// Model computes figures for platforms by name. Results are kept, because many
// rows need the same run.
type Model struct {
	ctx   context.Context // of what is computed
	load  func(name string) (*profile.Profile, error)
	cache map[key]virtual.Result

	system    func(name string) (*profile.MemorySystem, error)
	transfers map[transferKey]*coherence.Result
	contests  map[bridgeKey]*coherence.Outcome
}

type key struct {
	platform, policy string
	send, receive    int
	payload, count   int
	both, fetch      bool
	logged           bool // the firmware keeps the papers' DMA log; the first frame's hostTx of several is slow
	counted          bool // the transfers are listed
}

// NewModel makes a model that loads platforms with load; profile.Hosts.Load gives the
// built-in ones. Memory systems are the built-in ones. What is computed with it ends with ctx.
func NewModel(ctx context.Context, load func(name string) (*profile.Profile, error)) *Model {
	return &Model{ctx: ctx, load: load, cache: map[key]virtual.Result{},
		system: profile.Systems.Load, transfers: map[transferKey]*coherence.Result{}, contests: map[bridgeKey]*coherence.Outcome{}}
}

// On makes the model load memory systems with load.
func (m *Model) On(load func(name string) (*profile.MemorySystem, error)) *Model {
	m.system = load
	return m
}

func (m *Model) run(k key) (virtual.Result, error) {
	p, err := m.load(k.platform)
	if err != nil {
		return virtual.Result{}, err
	}
	plan, err := planOf(m.ctx, p, k)
	if err != nil {
		return virtual.Result{}, err
	}
	o := virtual.Options{Profile: p, Plan: plan, Payload: k.payload, Count: k.count, Bidirectional: k.both, Fetch: k.fetch}
	o.Log, o.LogCosts = k.logged || k.counted, k.logged
	if k.logged && k.count > 1 {
		o.Changes = beside
	}
	if k.policy == "auto" {
		o.Warmup = pipeline.AutoLearns
	}
	r, err := virtual.Run(m.ctx, o)
	if err != nil {
		return virtual.Result{}, fmt.Errorf("%s, %s: %w", k.platform, k.policy, err)
	}
	return *r, nil
}

// kept returns what was computed before for a key, or else computes it. After a failure, which it
// notes, it returns the zero value.
func kept[K comparable, V any](of map[K]V, k K, failure *error, compute func() (V, error)) (v V) {
	if *failure != nil {
		return v
	}
	v, ok := of[k]
	if !ok {
		if v, *failure = compute(); *failure == nil {
			of[k] = v
		}
	}
	return v
}

func planOf(ctx context.Context, p *profile.Profile, k key) (pipeline.Plan, error) {
	if k.policy != "optimal" {
		return pipeline.ByName(k.policy, pipeline.Parameters{MinPulseSend: k.send, MinPulseReceive: k.receive})
	}
	best, err := search.Optimal(ctx, p, k.payload)
	if err != nil {
		return pipeline.Plan{}, err
	}
	return best.Plan()
}
