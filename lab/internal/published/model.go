package published

import (
	"context"
	"fmt"

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
	ctx    context.Context // of what is computed
	load   func(name string) (*profile.Profile, error)
	system func(name string) (*profile.MemorySystem, error)
	cache  map[any]any // by a key, a transferKey or a bridgeKey
}

type key struct {
	platform, policy string
	send, receive    int
	payload, count   int
	both             bool
	logged           bool // the firmware keeps the papers' DMA log; the first frame's hostTx of several is slow
	counted          bool // the transfers are listed
}

// NewModel makes a model that loads platforms with load; profile.Hosts.Load gives the
// built-in ones. Memory systems are the built-in ones. What is computed with it ends with ctx.
func NewModel(ctx context.Context, load func(name string) (*profile.Profile, error)) *Model {
	return &Model{ctx: ctx, load: load, system: profile.Systems.Load, cache: map[any]any{}}
}

// On makes the model load memory systems with load.
func (m *Model) On(load func(name string) (*profile.MemorySystem, error)) *Model {
	m.system = load
	return m
}

func (m *Model) run(k key) (*virtual.Result, error) {
	p, err := m.load(k.platform)
	if err != nil {
		return nil, err
	}
	plan, err := search.Plan(m.ctx, p, k.policy, k.payload, pipeline.Parameters{MinPulseSend: k.send, MinPulseReceive: k.receive})
	if err != nil {
		return nil, err
	}
	o := virtual.Options{Profile: p, Plan: plan, Payload: k.payload, Count: k.count, Bidirectional: k.both}
	o.Log, o.LogCosts = k.logged || k.counted, k.logged
	if k.logged && k.count > 1 {
		o.Changes = virtual.BesideCopy(0, blockCopy)
	}
	if k.policy == "auto" {
		o.Warmup = pipeline.AutoLearns
	}
	r, err := virtual.Run(m.ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", k.platform, k.policy, err)
	}
	return r, nil
}

// kept returns what was computed before for a key, or else computes it. After a failure it returns the zero value.
func kept[V any](f *figure, key any, compute func() (*V, error)) *V {
	if v, ok := f.m.cache[key]; ok && f.err == nil {
		return v.(*V)
	}
	if f.err == nil {
		v, err := compute()
		if f.err = err; err == nil {
			f.m.cache[key] = v
			return v
		}
	}
	return new(V)
}
