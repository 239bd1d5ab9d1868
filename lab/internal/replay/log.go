// Package replay runs the frames of a live NIC's log through the model: the same arrivals,
// policies and costs in virtual time. It says engine by engine where the two differ.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Errors of logs that cannot be replayed.
var (
	// ErrNoSetup: the log is of an older program, which did not say how the NICs were set up.
	ErrNoSetup = errors.New("the log does not say under which policy it was recorded; record it again with --dma-log of this version")
	// ErrNoFrames: no frame went through all engines of the log.
	ErrNoFrames = errors.New("the log has no frame that went through all its engines")
	// ErrTransfer: a transfer of the log cannot have happened.
	ErrTransfer = errors.New("a transfer that cannot be")
)

// frame is one that went through all engines of its flow.
type frame struct {
	bytes     int
	posted    profile.Time // when the NIC knew of it
	transfers [dmalog.Engines][]dmalog.Record
}

type flow struct {
	number  int
	engines []dmalog.Engine // that are in the log
	frames  []frame
	left    int // frames that did not go through all engines
}

// flowsOf sorts the records of a log by direction, frame and engine.
func flowsOf(records []dmalog.Record) ([]flow, error) {
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(a, b dmalog.Record) int {
		return cmp.Or(cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Packet, b.Packet), cmp.Compare(a.Start, b.Start))
	})
	var flows []flow
	for len(sorted) > 0 {
		n := 0
		for n < len(sorted) && sorted[n].Flow == sorted[0].Flow {
			n++
		}
		f, err := flowOf(sorted[:n])
		if err != nil {
			return nil, err
		}
		if len(f.frames) > 0 {
			flows = append(flows, f)
		}
		sorted = sorted[n:]
	}
	if len(flows) == 0 {
		return nil, ErrNoFrames
	}
	return flows, nil
}

// flowOf takes the records of one direction, by packet. The frames are those before the first
// that did not go through all engines: a log that was full ends in the middle of one.
func flowOf(records []dmalog.Record) (flow, error) {
	f := flow{number: records[0].Flow}
	records = slices.DeleteFunc(slices.Clone(records), func(r dmalog.Record) bool { return r.Control })
	for _, r := range records {
		if r.Bytes < 1 || r.Bytes > pipeline.MaxFrame || r.Engine >= dmalog.Engines {
			return f, fmt.Errorf("packet %d, %v: %w: %d bytes, 1 to %d", r.Packet, r.Engine, ErrTransfer, r.Bytes, pipeline.MaxFrame)
		}
		if !slices.Contains(f.engines, r.Engine) {
			f.engines = append(f.engines, r.Engine)
		}
	}
	slices.Sort(f.engines)
	whole := true
	for packet := 0; len(records) > 0; packet++ {
		n := 0
		for n < len(records) && records[n].Packet == records[0].Packet {
			n++
		}
		one := frame{}
		for _, r := range records[:n] {
			one.transfers[r.Engine] = append(one.transfers[r.Engine], r)
		}
		if whole = whole && records[0].Packet == packet && f.takes(&one); whole {
			f.frames = append(f.frames, one)
		} else {
			f.left++
		}
		records = records[n:]
	}
	f.post()
	return f, nil
}

// takes reports whether a frame went through all engines, and notes its length.
func (f *flow) takes(one *frame) bool {
	for i, e := range f.engines {
		n := 0
		for _, r := range one.transfers[e] {
			n = min(n+r.Bytes, pipeline.MaxFrame+1)
		}
		if i == 0 {
			one.bytes = n
		}
		if n != one.bytes || n == 0 || n > pipeline.MaxFrame {
			return false
		}
	}
	return true
}

// post finds out when the NIC knew of each frame: when it began the first of those that
// had the frame among those behind them. A NIC that only receives knows of a frame when it comes.
func (f *flow) post() {
	first := f.engines[0]
	next, last := 0, profile.Time(0)
	for k := range f.frames {
		began := f.frames[k].transfers[first][0]
		last = max(last, profile.Time(began.Start))
		behind := 0
		if first == dmalog.HostTx {
			behind = min(began.Queued, len(f.frames)-1-k)
		}
		for ; next <= k+behind; next++ {
			f.frames[next].posted = last
		}
	}
}

func (f *flow) has(e dmalog.Engine) bool { return slices.Contains(f.engines, e) }

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
