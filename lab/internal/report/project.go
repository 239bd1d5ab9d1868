package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Projection says what a faster bus and a faster link would do: overheads, firmware and hosts
// stay as they are (cut-through paper, section 4.4).
type Projection struct {
	Buses   []*profile.Profile // whose buses and firmware are taken
	Labels  []string           // of the buses
	Links   []float64          // MB/s
	Policy  string
	Payload int // bytes
}

// Projected is one pair of a bus and a link.
type Projected struct {
	Bus       string       `json:"bus"`
	Link      float64      `json:"link_mb_s"`
	Whole     profile.Time `json:"store_and_forward_us"`
	Latency   profile.Time `json:"latency_us"`
	Reduction float64      `json:"reduction_percent"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
}

// FasterBus returns a copy of a profile whose buses have factor times the bandwidth.
func FasterBus(p *profile.Profile, factor float64) *profile.Profile {
	q := *p
	for _, c := range []*profile.Cost{&q.Sender.Read, &q.Sender.Write, &q.Receiver.Read, &q.Receiver.Write} {
		c.PerByte = profile.NewCost(0, c.Bandwidth()*factor).PerByte
	}
	return &q
}

// Run computes each pair, all links of the first bus first.
func (o Projection) Run(ctx context.Context) ([]Projected, error) {
	var rows []Projected
	m := meter{ctx: ctx}
	for i, bus := range o.Buses {
		for _, link := range o.Links {
			p := *bus
			p.Link.Pulse.PerByte = profile.NewCost(0, link).PerByte
			whole := m.measure(Case{Profile: &p, Policy: "store-and-forward", Payload: o.Payload, Count: 1})
			f := m.measure(Case{Profile: &p, Policy: o.Policy, Payload: o.Payload, Count: streamFrames, Warmup: -1})
			rows = append(rows, Projected{Bus: o.Labels[i], Link: link, Whole: whole.Latency, Latency: f.Latency, Bandwidth: f.Bandwidth,
				Reduction: 100 * (1 - float64(f.Latency)/float64(whole.Latency))})
		}
	}
	return rows, m.err
}

// Draw draws the reduction of latency against the link, a curve for each bus.
func (o Projection) Draw(ctx context.Context) ([]byte, error) {
	rows, err := o.Run(ctx)
	if err != nil {
		return nil, err
	}
	ch := plot.Chart{
		Title: "Projection: " + o.Policy + " against store and forward",
		Note:  fmt.Sprintf("%d bytes, one way, idle system; overheads, firmware and hosts as they are", o.Payload),
		X:     plot.Axis{Label: "link, MB/s", Log2: true},
		Y:     plot.Axis{Label: "latency less, %", Zero: true},
	}
	for i, label := range o.Labels {
		s := plot.Series{Name: label}
		for _, r := range rows[i*len(o.Links) : (i+1)*len(o.Links)] {
			s.Points = append(s.Points, plot.Point{X: r.Link, Y: r.Reduction})
		}
		ch.Series = append(ch.Series, s)
	}
	return ch.SVG()
}
