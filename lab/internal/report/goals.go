package report

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// GoalPayloads are the payloads that "auto" is held against the best schedules for, in
// bytes.
var GoalPayloads = []int{1024, 2048, 4096, 8192, 16384, 32768, 65536}

// Goal compares "auto", which knows no costs, with the best schedule for one payload on one platform.
// The costs of one engine may have changed there.
type Goal struct {
	Profile   string       `json:"profile"`
	Payload   int          `json:"payload"`
	Engine    string       `json:"changed_engine,omitempty" help:"with --changes"`
	Overhead  float64      `json:"overhead_factor,omitempty" help:"with --changes"`
	Bandwidth float64      `json:"bandwidth_factor,omitempty" help:"with --changes"`
	Best      profile.Time `json:"best_us"`                                 // lowest latency that search finds
	Auto      profile.Time `json:"auto_us"`                                 // latency after Learning frames, or ChangeFrames after the change
	Gap       float64      `json:"gap_percent"`                             // from Best to Auto
	Stream    float64      `json:"stream_over_store_and_forward,omitempty"` // bandwidth of a stream
	Bus       float64      `json:"bus_over_amp,omitempty"`                  // time on the buses at light load
}

func (g *Goal) gap(latency profile.Time) float64 {
	return 100 * (float64(latency)/float64(g.Best) - 1)
}

// Against measures a goal.
func Against(ctx context.Context, p *profile.Profile, payload int) (*Goal, error) {
	best, err := search.Optimal(ctx, p, payload)
	if err != nil {
		return nil, err
	}
	m := meter{ctx: ctx}
	auto := m.measure(Case{Profile: p, Policy: "auto", Payload: payload, Count: 1, Warmup: -1})
	g := &Goal{Profile: p.Name, Payload: payload, Best: min(best.Latency, auto.Latency), Auto: auto.Latency}
	g.Gap = g.gap(auto.Latency)
	stream := func(policy string, gap profile.Time) *Figures {
		return m.measure(Case{Profile: p, Policy: policy, Payload: payload, Count: streamFrames, Gap: gap, Warmup: -1})
	}
	g.Stream = stream("auto", 0).Bandwidth / stream("store-and-forward", 0).Bandwidth
	light := min(4*auto.Latency, profile.Micros(1e6))
	g.Bus = float64(stream("auto", light).Busy) / float64(stream("amp", light).Busy)
	return g, m.err
}

// Varied returns a platform whose bus and link costs and whose decisions cost what those of p do
// times random factors from a half to two, for checks against figures that were not looked at
// before.
func Varied(p *profile.Profile, seed uint64) *profile.Profile {
	r := rand.New(rand.NewPCG(seed, uint64(len(p.Name))))
	q := *p
	q.Name = fmt.Sprintf("%s/%d", p.Name, seed)
	factor := func() float64 { return math.Exp2(2*r.Float64() - 1) }
	for _, c := range []*profile.Cost{&q.Sender.Read, &q.Sender.Write, &q.Receiver.Read, &q.Receiver.Write, &q.Link.Pulse} {
		*c = scaled(*c, factor(), factor())
	}
	q.NIC.Decision = profile.Time(float64(q.NIC.Decision) * factor())
	return &q
}

func scaled(c profile.Cost, overhead, bandwidth float64) profile.Cost {
	return profile.Cost{Overhead: profile.Time(float64(c.Overhead) * overhead), PerByte: max(int64(float64(c.PerByte)/bandwidth), 1)}
}

// ChangeFrames is the number of frames in which "auto" adapts.
const ChangeFrames = 200

// Changes measures auto after each of hostTx, netTx and hostRcv has got half or twice
// the bandwidth, or half or twice the overhead, in the middle of a run.
func Changes(ctx context.Context, p *profile.Profile, payload int) ([]Goal, error) {
	plan, err := pipeline.ByName("auto", pipeline.Parameters{})
	if err != nil {
		return nil, err
	}
	var all []Goal
	for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.NetTx, dmalog.HostRcv} {
		for _, f := range [][2]float64{{1, 0.5}, {1, 2}, {0.5, 1}, {2, 1}} {
			q := *p
			cost := map[dmalog.Engine]*profile.Cost{dmalog.HostTx: &q.Sender.Read, dmalog.NetTx: &q.Link.Pulse, dmalog.HostRcv: &q.Receiver.Write}[e]
			*cost = scaled(*cost, f[0], f[1])
			best, err := search.Optimal(ctx, &q, payload)
			if err != nil {
				return nil, err
			}
			r, err := virtual.Run(ctx, virtual.Options{Profile: p, Plan: plan, Payload: payload, Count: 1, Warmup: Learning + ChangeFrames,
				Changes: []virtual.Change{{Frame: Learning, Engine: e, Overhead: f[0], Bandwidth: f[1]}}})
			if err != nil {
				return nil, err
			}
			g := Goal{Profile: p.Name, Payload: payload, Engine: e.String(), Overhead: f[0], Bandwidth: f[1], Best: min(best.Latency, r.Latency), Auto: r.Latency}
			g.Gap = g.gap(r.Latency)
			all = append(all, g)
		}
	}
	return all, nil
}
