package report

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
)

// fixedStep is the distance of the fixed pulses that are tried, in bytes.
const fixedStep = 128

// bestFixed is the fixed pulse of both sides, a multiple of fixedStep, under which a lone payload
// is delivered first.
func bestFixed(m *meter, p *profile.Profile, payload int) (best Case) {
	least := profile.Time(math.MaxInt64)
	for n := min(fixedStep, payload); n <= payload; n += fixedStep {
		c := Case{Profile: p, Policy: "static", MinPulseSend: n, MinPulseReceive: n, Payload: payload, Count: 1}
		if f := m.measure(c); f.Latency < least {
			best, least = c, f.Latency
		}
	}
	return best
}

// Schedules draws a lone payload under store and forward, under the best fixed pulse and under
// the best variable schedule, over one axis of time (patent, figures 7A to 7C).
func (c Case) Schedules(ctx context.Context) ([]byte, error) {
	p, payload := c.Profile, c.Payload
	m := meter{ctx: ctx}
	fixed := bestFixed(&m, p, payload)
	b := plot.Bands{
		Title:  "Three schedules: " + p.Name,
		Note:   fmt.Sprintf("%d bytes:", payload),
		Legend: "One stripe is one transfer; colours alternate.",
	}
	for _, s := range []struct {
		name, says string
		c          Case
	}{
		{"whole", "store and forward", Case{Profile: p, Policy: "store-and-forward", Payload: payload, Count: 1}},
		{"fixed", fmt.Sprintf("best fixed pulse (%d bytes)", fixed.MinPulseSend), fixed},
		{"variable", "best variable schedule", Case{Profile: p, Policy: "optimal", Payload: payload, Count: 1}},
	} {
		s.c.Log = true
		f := m.measure(s.c)
		b.Note += fmt.Sprintf(" %s %s us;", s.says, figure(f.Latency.Microseconds()))
		b.To = max(b.To, int64(f.Latency))
		first := len(b.Names)
		for e := range dmalog.Engines {
			b.Names = append(b.Names, s.name+": "+e.String())
		}
		moved := map[int]int{}
		for _, r := range f.Log {
			at := first + int(r.Engine)
			b.Stripes = append(b.Stripes, plot.Stripe{Band: at, Number: moved[at], Start: r.Start, End: r.End})
			moved[at]++
		}
	}
	if m.err != nil {
		return nil, m.err
	}
	b.Note = b.Note[:len(b.Note)-1]
	return b.SVG()
}

// Shared sums one sender of a trunk up, under a policy.
type Shared struct {
	Policy string `json:"policy"`
	Number int    `json:"sender" help:"from 0; the first has the slow bus"`
	virtual.Sender
}

// onTrunk runs a case's stream from each sender of a trunk.
func (c Case) onTrunk(ctx context.Context) (*virtual.Result, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	o := c.lone(plan)
	o.Count, o.Gap, o.Random, o.Log, o.Trunk = c.Count, c.Gap, c.Random, c.Log, &c.Trunk
	return virtual.Run(ctx, o)
}

// OnTrunk says what each sender of a trunk comes to in each case.
func OnTrunk(cases []Case, ctx context.Context) ([]Shared, error) {
	var rows []Shared
	for _, c := range cases {
		r, err := c.onTrunk(ctx)
		if err != nil {
			return nil, err
		}
		for i, s := range r.Senders {
			rows = append(rows, Shared{c.Policy, i, s})
		}
	}
	return rows, nil
}

// Trunks draws the senders' engines, and who holds the trunk.
func (c Case) Trunks(ctx context.Context) ([]byte, error) {
	t := c.Trunk
	c.Log = true
	r, err := c.onTrunk(ctx)
	if err != nil {
		return nil, err
	}
	b := plot.Bands{
		Title:  fmt.Sprintf("Trunk: %s, %s", c.Profile.Name, c.Policy),
		Note:   fmt.Sprintf("%d senders of %d payloads of %d bytes each", t.Senders, c.Count, c.Payload),
		Legend: "One stripe is one transfer, and its number that of the payload; on the trunk it is a packet, and the number that of its sender.",
	}
	for i := range t.Senders {
		for _, e := range []dmalog.Engine{dmalog.HostTx, dmalog.NetTx} {
			b.Names = append(b.Names, fmt.Sprintf("%d: %v", i, e))
		}
	}
	b.Names = append(b.Names, "trunk")
	for _, l := range r.Log {
		if l.Engine == dmalog.HostTx || l.Engine == dmalog.NetTx {
			b.Stripes = append(b.Stripes, plot.Stripe{Band: 2*l.Flow + int(l.Engine), Number: l.Packet, Start: l.Start, End: l.End})
		}
	}
	for _, h := range r.Holds {
		b.Stripes = append(b.Stripes, plot.Stripe{Band: 2 * t.Senders, Number: h.Flow, Start: int64(h.Start), End: int64(h.End)})
	}
	return b.SVG()
}

// Cells is the picture of a scenario.
type Cells struct {
	cellmodel.Options
	Until profile.Time // 0 = all of it
}

// Draw draws what the NICs of a scenario do until a time, 0 = all of it: a band for
// cells received, of high and of low priority at each host that has any, and a stripe for
// each cell. Of many hosts it shows the first and the last.
func (o Cells) Draw(context.Context) ([]byte, error) {
	r, err := cellmodel.Run(o.Options)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, t := range r.Transfers {
		last = max(last, t.Host)
	}
	b := plot.Bands{
		Title:  fmt.Sprintf("Cells: %s, %s", o.Platform.Name, o.Scenario),
		Note:   "virtual time from the first store; " + cellFigures(r),
		Legend: "One stripe is one cell; its colour and its number are those of its message.",
	}
	if end := r.Transfers[len(r.Transfers)-1].End; int64(o.Until) < int64(end) {
		b.To = int64(o.Until)
	}
	type doer struct {
		host int
		step cells.Step
	}
	var doers []doer
	for _, host := range slices.Compact([]int{0, last}) {
		for _, step := range []cells.Step{cells.Receive, cells.High, cells.Low} {
			if slices.ContainsFunc(r.Transfers, func(t cellmodel.Transfer) bool { return t.Host == host && t.Step == step }) {
				doers = append(doers, doer{host, step})
				b.Names = append(b.Names, fmt.Sprintf("host %d, %v", host, step))
			}
		}
	}
	for _, t := range r.Transfers {
		if i := slices.Index(doers, doer{t.Host, t.Step}); i >= 0 {
			b.Stripes = append(b.Stripes, plot.Stripe{Band: i, Number: t.Message, Start: int64(t.Start), End: int64(t.End)})
		}
	}
	return b.SVG()
}

// cellFigures are those that a picture states.
func cellFigures(r *cellmodel.Result) string {
	for _, f := range []struct {
		name string
		time profile.Time
	}{{"urgent cell", r.Urgent}, {"barrier", r.Barrier}, {"round trip", r.RoundTrip}, {"one way", r.OneWay}, {"a cell every", r.Interval}} {
		if f.time > 0 {
			return fmt.Sprintf("%s %s us", f.name, figure(f.time.Microseconds()))
		}
	}
	return ""
}
