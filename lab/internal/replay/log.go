// Package replay runs the frames of a live NIC's log through the model: the same arrivals,
// policies and costs in virtual time. It says engine by engine where the two differ.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
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

func (f *flow) arrivals() []virtual.Frame {
	frames := make([]virtual.Frame, len(f.frames))
	for i, one := range f.frames {
		frames[i] = virtual.Frame{Posted: one.posted - f.frames[0].posted, Bytes: one.bytes}
	}
	return frames
}

func (f *flow) has(e dmalog.Engine) bool { return slices.Contains(f.engines, e) }
