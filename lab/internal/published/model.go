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
	ctx   context.Context // of what is computed
	load  func(name string) (*profile.Profile, error)
	cache map[key]virtual.Result
}

type key struct {
	platform, policy string
	send, receive    int
	payload, count   int
	both             bool
}

// NewModel makes a model that loads platforms with load; profile.Load gives the
// built-in ones. What is computed with it ends with ctx.
func NewModel(ctx context.Context, load func(name string) (*profile.Profile, error)) *Model {
	return &Model{ctx: ctx, load: load, cache: map[key]virtual.Result{}}
}

// Platform returns a platform's costs.
func (m *Model) Platform(name string) (*profile.Profile, error) { return m.load(name) }

func (m *Model) run(k key) (virtual.Result, error) {
	if r, ok := m.cache[k]; ok {
		return r, nil
	}
	p, err := m.load(k.platform)
	if err != nil {
		return virtual.Result{}, err
	}
	plan, err := planOf(m.ctx, p, k)
	if err != nil {
		return virtual.Result{}, err
	}
	o := virtual.Options{Profile: p, Plan: plan, Payload: k.payload, Count: k.count, Bidirectional: k.both}
	if k.policy == "auto" {
		o.Warmup = pipeline.AutoLearns
	}
	r, err := virtual.Run(m.ctx, o)
	if err != nil {
		return virtual.Result{}, fmt.Errorf("%s, %s: %w", k.platform, k.policy, err)
	}
	m.cache[k] = *r
	return *r, nil
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

// Latency returns the one-way latency in microseconds of one frame on an idle
// system. send and receive are the thresholds or pulses of the two sides in bytes, 0
// for the policy's own.
func (m *Model) Latency(platform, policy string, send, receive, payload int) (float64, error) {
	r, err := m.run(key{platform, policy, send, receive, payload, 1, false})
	return r.Latency.Microseconds(), err
}

// Bandwidth returns the bandwidth in MB/s of a stream or, if both hosts send one, of
// the two together.
func (m *Model) Bandwidth(platform, policy string, send, receive, payload int, both bool) (float64, error) {
	r, err := m.run(key{platform, policy, send, receive, payload, streamFrames, both})
	return r.Bandwidth, err
}

// Best returns the pulse with the lowest latency among from, from+step, ... to,
// and that latency.
func (m *Model) Best(platform, policy string, payload, from, to, step int) (pulse int, latency float64, err error) {
	for n := from; n <= to; n += step {
		l, err := m.Latency(platform, policy, n, n, payload)
		if err != nil {
			return 0, 0, err
		}
		if pulse == 0 || l < latency {
			pulse, latency = n, l
		}
	}
	return pulse, latency, nil
}
