package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// maxPerByte keeps the time of the longest frame in range, in femtoseconds.
const maxPerByte = math.MaxInt64 / pipeline.MaxFrame / 2

// platform has the costs of a flow's engines by its log. A NIC of this project runs its engines
// by polling, and has neither the decisions nor the packets of a firmware as costs apart.
func (f *flow) platform(setup *dmalog.Setup) *profile.Profile {
	p := &profile.Profile{Name: "the log's costs", NIC: profile.NIC{Buffers: 1}, Link: profile.Link{Header: datasheet.HeaderSize}}
	p.Sender = profile.Bus{FullDuplex: true, Read: f.cost(dmalog.HostTx)}
	p.Receiver = profile.Bus{FullDuplex: true, Write: f.cost(dmalog.HostRcv)}
	if p.Link.Pulse = f.cost(dmalog.NetTx); !f.has(dmalog.NetTx) {
		p.Link.Pulse = f.cost(dmalog.NetRcv)
	}
	if setup.Rate > 0 {
		p.Link.Pulse = f.linkCost(p.Link.Pulse, setup.Rate)
	}
	p.Link.Latency = f.latency()
	return p
}

// linkCost returns the cost of transfers over a wire with a known rate, in bytes per second. The time of a transfer is no measure of
// it: the wire stands still at the start of a frame while the receiver has no buffer. The overhead is the median of what later
// transfers take beside their bytes or, if there are none, the least of the first ones.
func (f *flow) linkCost(measured profile.Cost, rate float64) profile.Cost {
	c := profile.Cost{Overhead: measured.Overhead, PerByte: int64(min(max(math.Round(1e15/rate), 1), maxPerByte))}
	var first, later []profile.Time
	for _, one := range f.frames {
		for i, r := range one.transfers[dmalog.NetTx] {
			if took := profile.Time(r.End - r.Start); i == 0 {
				first = append(first, took-c.Bytes(r.Bytes+datasheet.HeaderSize))
			} else {
				later = append(later, took-c.Bytes(r.Bytes))
			}
		}
	}
	switch {
	case len(later) > 0:
		c.Overhead = max(median(later), 0)
	case len(first) > 0:
		c.Overhead = max(slices.Min(first), 0)
	}
	return c
}

// fitted bounds the transfers of an engine that its costs are taken from: more change nothing.
const fitted = 600

// cost returns the cost of an engine's transfers by the median slope between transfers of different
// sizes (Theil and Sen). The few that a busy machine held up do not change it. An engine that
// is not in the log costs next to nothing.
func (f *flow) cost(e dmalog.Engine) profile.Cost {
	type point struct{ bytes, took float64 }
	var all []point
	for _, one := range f.frames {
		for i, r := range one.transfers[e] {
			p := point{float64(r.Bytes), float64(r.End - r.Start)}
			if i == 0 && e == dmalog.NetTx {
				p.bytes += datasheet.HeaderSize // which leaves ahead of the payload
			}
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return profile.Cost{PerByte: 1}
	}
	step := (len(all) + fitted - 1) / fitted
	var points []point
	for i := 0; i < len(all); i += step {
		points = append(points, all[i])
	}
	var slopes, overheads, rates []float64
	for i, a := range points {
		rates = append(rates, a.took/a.bytes)
		for _, b := range points[:i] {
			if a.bytes != b.bytes {
				slopes = append(slopes, (a.took-b.took)/(a.bytes-b.bytes))
			}
		}
	}
	overhead, perByte := 0.0, median(rates) // one size says nothing about an overhead
	if len(slopes) > 0 {
		slope := max(median(slopes), 0)
		for _, p := range points {
			overheads = append(overheads, p.took-slope*p.bytes)
		}
		if o := median(overheads); o >= 0 {
			overhead, perByte = o, slope
		}
	}
	return profile.Cost{Overhead: profile.Time(math.Round(overhead)), PerByte: int64(min(max(math.Round(perByte*1000), 1), maxPerByte))}
}

// latency is the wire's: from when a frame's last byte has left until the receiver has seen it. It
// is that of the fastest frame: others have waited for the receiver.
func (f *flow) latency() profile.Time {
	if !f.has(dmalog.NetTx) || !f.has(dmalog.NetRcv) {
		return 0
	}
	least := int64(math.MaxInt64)
	for _, one := range f.frames {
		sent, came := one.transfers[dmalog.NetTx], one.transfers[dmalog.NetRcv]
		least = min(least, came[len(came)-1].End-sent[len(sent)-1].End)
	}
	return profile.Time(max(least, 0))
}

// median returns the lower median of some values, at least one, and sorts them.
func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
