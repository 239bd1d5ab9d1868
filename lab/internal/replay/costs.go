package replay

import (
	"maps"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// maxPerByte keeps the time of the longest frame in range, in femtoseconds.
const maxPerByte = math.MaxInt64 / pipeline.MaxFrame / 2

// platform is what the engines of a flow cost by its log. A NIC of this project runs its engines
// by polling, and has neither the decisions nor the packets of a firmware as costs apart.
func (f *flow) platform() *profile.Profile {
	p := &profile.Profile{Name: "the log's costs", NIC: profile.NIC{Buffers: 1}, Link: profile.Link{Header: descriptors.HeaderSize}}
	p.Sender = profile.Bus{FullDuplex: true, Read: f.cost(dmalog.HostTx)}
	p.Receiver = profile.Bus{FullDuplex: true, Write: f.cost(dmalog.HostRcv)}
	if p.Link.Pulse = f.cost(dmalog.NetTx); !f.has(dmalog.NetTx) {
		p.Link.Pulse = f.cost(dmalog.NetRcv)
	}
	p.Link.Latency = f.latency()
	return p
}

// cost is what a transfer of an engine costs: a line through the median times of the sizes that
// there are, each by its number of transfers. An engine that is not in the log costs next to nothing.
func (f *flow) cost(e dmalog.Engine) profile.Cost {
	took := map[int][]int64{} // by bytes
	for _, one := range f.frames {
		for i, r := range one.transfers[e] {
			if i == 0 && (e == dmalog.NetTx || e == dmalog.NetRcv) {
				r.Bytes += descriptors.HeaderSize // which leaves ahead of the payload
			}
			took[r.Bytes] = append(took[r.Bytes], r.End-r.Start)
		}
	}
	var n, x, y, xx, xy float64
	for _, bytes := range slices.Sorted(maps.Keys(took)) {
		weight, size, time := float64(len(took[bytes])), float64(bytes), float64(median(took[bytes]))
		n, x, y = n+weight, x+weight*size, y+weight*time
		xx, xy = xx+weight*size*size, xy+weight*size*time
	}
	if n == 0 {
		return profile.Cost{PerByte: 1}
	}
	overhead, perByte := 0.0, xy/xx // one size says nothing about an overhead
	if d := n*xx - x*x; len(took) > 1 && d > 0 {
		switch slope := (n*xy - x*y) / d; {
		case slope <= 0:
			overhead, perByte = y/n, 0
		case y/n-slope*x/n > 0:
			overhead, perByte = y/n-slope*x/n, slope
		}
	}
	return profile.Cost{Overhead: profile.Time(math.Round(overhead)), PerByte: int64(min(max(math.Round(perByte*1000), 1), maxPerByte))}
}

// latency is the wire's: from when a frame's last byte has left until the receiver has seen it.
func (f *flow) latency() profile.Time {
	if !f.has(dmalog.NetTx) || !f.has(dmalog.NetRcv) {
		return 0
	}
	var each []int64
	for _, one := range f.frames {
		sent, came := one.transfers[dmalog.NetTx], one.transfers[dmalog.NetRcv]
		each = append(each, came[len(came)-1].End-sent[len(sent)-1].End)
	}
	return profile.Time(max(median(each), 0))
}

// median returns the lower median of some values, at least one, and sorts them.
func median[T int | int64](values []T) T {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
