package report

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Messages of the EDT paper's bars, in two pictures so that short ones can be seen, and
// that of its breakdown; in bytes.
var (
	shortMessages = []int{64, 128, 256, 512}
	longMessages  = []int{1024, 2048, 4096}
)

const brokenDown = 256

// comparedTransfers are the mechanisms that pictures show unless others are asked for: on a
// memory bus those that the paper simulated, on PCIe those that NICs have.
func comparedTransfers(s *profile.MemorySystem) []coherence.Mechanism {
	if s.PCIe != nil {
		return []coherence.Mechanism{coherence.EDT, coherence.Inline, coherence.DMA}
	}
	return []coherence.Mechanism{coherence.EDT, coherence.CCDMAIntv, coherence.CCDMARetr}
}

// Transfers draws the EDT paper's bars: latency in its three parts by size and mechanism,
// and a breakdown into seven at 256 bytes. o says all but mechanism and size. Without mechanisms the
// bars show some and the breakdown all that the platform has.
func Transfers(ctx context.Context, o coherence.Options, mechanisms []coherence.Mechanism) ([]byte, error) {
	parts := mechanisms
	if len(mechanisms) == 0 {
		mechanisms, parts = comparedTransfers(o.System), coherence.Mechanisms(o.System)
	}
	if o.DMARate == 0 {
		o.DMARate = coherence.HighestRate(o.System)
	}
	note := fmt.Sprintf("DMA at up to %s MB/s, words written in order; no network time", figure(o.DMARate))
	if o.Order != "" && o.Order != coherence.Sequential {
		note = fmt.Sprintf("DMA at up to %s MB/s, words written in order %q; no network time", figure(o.DMARate), o.Order)
	}
	short, err := transferBars(ctx, o, mechanisms, shortMessages, threeParts)
	if err != nil {
		return nil, err
	}
	long, err := transferBars(ctx, o, mechanisms, longMessages, threeParts)
	if err != nil {
		return nil, err
	}
	all, err := transferBars(ctx, o, parts, []int{brokenDown}, sevenParts)
	if err != nil {
		return nil, err
	}
	picture := func(title string, groups []plot.Group, parts []part) plot.Bars {
		names := make([]string, len(parts))
		for i, p := range parts {
			names[i] = p.name
		}
		return plot.Bars{Title: title, Note: note, X: "bytes of the message", Y: plot.Axis{Label: "one-way latency, us"},
			Parts: names, Groups: groups}
	}
	return plot.StackBars("Latency by mechanism: "+o.System.Name,
		picture("Short messages: "+o.System.Name, short, threeParts), picture("Longer messages: "+o.System.Name, long, threeParts),
		picture(fmt.Sprintf("Where %d bytes spend their time: %s", brokenDown, o.System.Name), all, sevenParts))
}

// part is one of a bar.
type part struct {
	name string
	of   func(*coherence.Result) coherence.Time
}

// The parts of a message's latency: the paper's three, and those of its figure 9.
var (
	threeParts = []part{
		{"user", func(r *coherence.Result) coherence.Time { return r.User }},
		{"data transfer", func(r *coherence.Result) coherence.Time { return r.Transfer }},
		{"transport", func(r *coherence.Result) coherence.Time { return r.Transport }},
	}
	sevenParts = []part{
		{"user, sending", func(r *coherence.Result) coherence.Time { return r.SendUser }},
		{"user, receiving", func(r *coherence.Result) coherence.Time { return r.User - r.SendUser }},
		{"initiation", func(r *coherence.Result) coherence.Time { return r.Initiation }},
		{"execution", (*coherence.Result).Execution},
		{"interrupt", func(r *coherence.Result) coherence.Time { return r.Interrupt }},
		{"transport, sending", func(r *coherence.Result) coherence.Time { return r.SendTransport }},
		{"transport, receiving", func(r *coherence.Result) coherence.Time { return r.Transport - r.SendTransport }},
	}
)

// transferBars computes a group of bars for each size.
func transferBars(ctx context.Context, o coherence.Options, mechanisms []coherence.Mechanism, sizes []int, parts []part) ([]plot.Group, error) {
	groups := make([]plot.Group, len(sizes))
	for i, n := range sizes {
		groups[i].Name = fmt.Sprint(n)
		for _, m := range mechanisms {
			o.Mechanism, o.Bytes = m, n
			r, err := coherence.Run(ctx, o)
			if err != nil {
				return nil, err
			}
			bar := plot.Bar{Name: string(m)}
			for _, p := range parts {
				bar.Parts = append(bar.Parts, p.of(r).Microseconds())
			}
			groups[i].Bars = append(groups[i].Bars, bar)
		}
	}
	return groups, nil
}
