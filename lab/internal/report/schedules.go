package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// fixedStep is the distance of the fixed pulses that are tried, in bytes.
const fixedStep = 128

// bestFixed is the fixed pulse of both sides, a multiple of fixedStep, under which a lone payload
// is delivered first.
func bestFixed(ctx context.Context, p *profile.Profile, payload int) (Case, error) {
	best, least := Case{}, profile.Time(0)
	for n := min(fixedStep, payload); n <= payload; n += fixedStep {
		c := Case{Profile: p, Policy: "static", MinPulseSend: n, MinPulseReceive: n, Payload: payload, Count: 1}
		f, err := c.Measure(ctx)
		if err != nil {
			return Case{}, err
		}
		if least == 0 || f.Latency < least {
			best, least = c, f.Latency
		}
	}
	return best, nil
}

// Schedules draws a lone payload under store and forward, under the best fixed pulse and under
// the best variable schedule, over one axis of time (patent, figures 7A to 7C).
func (c Case) Schedules(ctx context.Context) ([]byte, error) {
	p, payload := c.Profile, c.Payload
	fixed, err := bestFixed(ctx, p, payload)
	if err != nil {
		return nil, err
	}
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
		f, err := s.c.Measure(ctx)
		if err != nil {
			return nil, err
		}
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
	b.Note = b.Note[:len(b.Note)-1]
	return b.SVG()
}
