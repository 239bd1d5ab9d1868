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
type Goal struct {
	Profile string
	Payload int
	Best    profile.Time // lowest latency that search finds
	Auto    profile.Time // latency after Learning frames
	Answer  profile.Time // auto's netTx pulses, and the hostRcv transfers that search finds for them
	Stream  float64      // bandwidth of a stream over that of store-and-forward
	Bus     float64      // time on the buses at light load over that of amp
}

// Gap returns how far auto is from the best schedule, as a share of it.
func (g *Goal) Gap() float64 { return float64(g.Auto)/float64(g.Best) - 1 }

// SenderGap returns the part of Gap that no receiver could have made up for: what
// auto's netTx pulses cost even with the best answer to them.
func (g *Goal) SenderGap() float64 { return float64(min(g.Answer, g.Auto))/float64(g.Best) - 1 }

// Against measures a goal.
func Against(ctx context.Context, p *profile.Profile, payload int) (*Goal, error) {
	best, err := search.Optimal(ctx, p, payload)
	if err != nil {
		return nil, err
	}
	auto, err := Case{Profile: p, Policy: "auto", Payload: payload, Count: 1, Warmup: -1, Log: true}.Measure(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := search.Answer(ctx, p, payload, auto.Log)
	if err != nil {
		return nil, err
	}
	g := &Goal{Profile: p.Name, Payload: payload, Best: min(best.Latency, auto.Latency), Auto: auto.Latency, Answer: answer.Latency}
	ratio := func(over string, gap profile.Time, figure func(*Figures) float64) (float64, error) {
		var v [2]float64
		for i, policy := range []string{"auto", over} {
			f, err := Case{Profile: p, Policy: policy, Payload: payload, Count: streamFrames, Gap: gap, Warmup: -1}.Measure(ctx)
			if err != nil {
				return 0, err
			}
			v[i] = figure(f)
		}
		return v[0] / v[1], nil
	}
	if g.Stream, err = ratio("store-and-forward", 0, func(f *Figures) float64 { return f.Bandwidth }); err != nil {
		return nil, err
	}
	light := min(4*auto.Latency, virtual.MaxGap)
	g.Bus, err = ratio("amp", light, func(f *Figures) float64 { return float64(f.Busy) })
	return g, err
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

// Changed compares "auto" with the best schedule after the costs of one engine have changed.
type Changed struct {
	Profile   string
	Payload   int
	Engine    dmalog.Engine
	Overhead  float64      // factor
	Bandwidth float64      // factor
	Best      profile.Time // lowest latency that search finds for the new costs
	Auto      profile.Time // latency ChangeFrames frames after the change
}

// Gap returns how far auto is from the best schedule, as a share of it.
func (c *Changed) Gap() float64 { return float64(c.Auto)/float64(c.Best) - 1 }

// ChangeFrames is the number of frames in which "auto" adapts.
const ChangeFrames = 200

// Changes measures auto after each of hostTx, netTx and hostRcv has got half or twice
// the bandwidth, or half or twice the overhead, in the middle of a run.
func Changes(ctx context.Context, p *profile.Profile, payload int) ([]Changed, error) {
	var all []Changed
	for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.NetTx, dmalog.HostRcv} {
		for _, f := range [][2]float64{{1, 0.5}, {1, 2}, {0.5, 1}, {2, 1}} {
			c := Changed{Profile: p.Name, Payload: payload, Engine: e, Overhead: f[0], Bandwidth: f[1]}
			if err := c.measure(ctx, p); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

func (c *Changed) measure(ctx context.Context, p *profile.Profile) error {
	q := *p
	cost := &q.Sender.Read
	switch c.Engine {
	case dmalog.NetTx:
		cost = &q.Link.Pulse
	case dmalog.HostRcv:
		cost = &q.Receiver.Write
	}
	*cost = scaled(*cost, c.Overhead, c.Bandwidth)
	best, err := search.Optimal(ctx, &q, c.Payload)
	if err != nil {
		return err
	}
	plan, err := pipeline.ByName("auto", pipeline.Parameters{})
	if err != nil {
		return err
	}
	r, err := virtual.Run(ctx, virtual.Options{Profile: p, Plan: plan, Payload: c.Payload, Count: 1, Warmup: Learning + ChangeFrames,
		Changes: []virtual.Change{{Frame: Learning, Engine: c.Engine, Overhead: c.Overhead, Bandwidth: c.Bandwidth}}})
	if err != nil {
		return err
	}
	c.Auto, c.Best = r.Latency, min(best.Latency, r.Latency)
	return nil
}
