// Package virtual carries the transfers of package pipeline out in virtual time:
// two hosts with a NIC each, joined by a link, cost what a profile says. It is the
// same scheduler and the same policies that move real bytes, under another clock.
//
// What is modelled, per NIC: one processor that makes one decision after the
// other, looking for an idle engine that has work, and pays for each decision and
// each packet; an I/O bus that carries one host transfer at a time (or one in each
// direction, PCIe); a link engine; a receive engine that follows the sender's in
// lock step, with back-pressure while the receiver has no buffer armed; and frame
// buffers. A control message travels ahead of each payload. Hosts cost a fixed
// time, half before and half after.
//
// Results are exact integers of picoseconds: the same options give the same bytes.
package virtual

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Limits of one run.
const (
	MaxCount     = 10_000_000
	MaxGap       = profile.Time(1e12) // one second
	MaxTransfers = 100_000_000        // of all engines
	MaxRecords   = 2_000_000          // transfers of a run that keeps a log
	MaxTime      = profile.Time(1e18) // virtual time: a million seconds
)

// Change alters the cost of one engine from a frame on, as a platform does when
// its memory or bus becomes busy.
type Change struct {
	Frame     int // first frame that pays the new cost, counted with the warm-up frames
	Engine    dmalog.Engine
	Overhead  float64 // factor, 0.01 to 100
	Bandwidth float64 // factor, 0.01 to 100
}

// Options of a run.
type Options struct {
	Profile *profile.Profile
	Plan    pipeline.Plan

	// Frames are those of a log, in place of Payload, Count and Gap, which are zero then: one
	// direction, in the order of their posting.
	Frames []Frame
	// Burst is the number of bytes of a frame that an incoming engine moves before it says so, 1 to
	// pipeline.MaxFrame. With 0 its progress counter shows every byte.
	Burst int
	// Live has the NICs' buffers be those of package engine. A sender has one frame at a time.
	// The next may come when netTx begins with the last transfer of the one before. If the plan
	// has one buffer, that transfer must have ended. Frames wait for a receiver on the wire.
	Live bool

	Payload       int          // bytes of each frame, 1 to pipeline.MaxFrame
	Count         int          // frames in each direction, 1 to MaxCount
	Gap           profile.Time // between postings; 0 = as fast as the host can
	Random        bool         // gaps are exponential with mean Gap instead of equal
	Seed          uint64       // of the random gaps
	Bidirectional bool         // the second host sends as many frames as the first

	// Warmup frames go first, one by one on an idle system, and are not measured:
	// policies that learn see them.
	Warmup int

	// Fetch has the second host ask for each frame with a control message that has no
	// payload, once it has the one before; the first host posts the frame Server after the
	// request was delivered to it. It goes without Gap and Bidirectional.
	Fetch  bool
	Server profile.Time // 0 to MaxGap

	// Trunk has several hosts send, each to one of its own, over one link between two
	// switches. It goes without Fetch and Bidirectional.
	Trunk *Trunk

	Changes  []Change
	Log      bool // keep a record of each transfer
	LogCosts bool // the firmware keeps one itself, and pays for it what the profile says
}

// Frame is one of a log.
type Frame struct {
	Posted profile.Time // since the first one
	Bytes  int          // 1 to pipeline.MaxFrame
}

// checkFrames refuses frames of a log that cannot be.
func (o *Options) checkFrames() error {
	bad := func(i int, allowed string) error {
		return &option.Error{Option: fmt.Sprintf("frame %d", i), Value: fmt.Sprintf("%d bytes at %g us", o.Frames[i].Bytes, o.Frames[i].Posted.Microseconds()), Allowed: allowed}
	}
	last := profile.Time(0)
	for i, f := range o.Frames {
		switch {
		case f.Bytes < 1 || f.Bytes > pipeline.MaxFrame:
			return bad(i, fmt.Sprintf("1 to %d bytes", pipeline.MaxFrame))
		case f.Posted < last || f.Posted > MaxTime || i == 0 && f.Posted != 0:
			return bad(i, "times from 0 on that do not fall")
		}
		last = f.Posted
	}
	return nil
}

func (o *Options) check() error {
	bad := func(name string, value any, allowed string) error {
		return &option.Error{Option: name, Value: fmt.Sprint(value), Allowed: allowed}
	}
	switch {
	case o.Profile == nil:
		return bad("profile", "nil", "a profile")
	case o.Plan.Send == nil || o.Plan.Receive == nil:
		return bad("policy", "nil", "a plan made by pipeline.ByName")
	case o.Burst < 0 || o.Burst > pipeline.MaxFrame:
		return bad("burst", o.Burst, fmt.Sprintf("0 to %d bytes", pipeline.MaxFrame))
	case o.Frames != nil && (o.Payload != 0 || o.Count != 0 || o.Gap != 0 || o.Bidirectional || o.Fetch):
		return bad("frames", len(o.Frames), "frames of a log or a payload and a count, not both")
	case o.Frames != nil && (len(o.Frames) == 0 || len(o.Frames) > MaxCount):
		return bad("frames", len(o.Frames), fmt.Sprintf("1 to %d", MaxCount))
	case o.Frames != nil && (o.Warmup < 0 || o.Warmup > MaxCount):
		return bad("warm-up", o.Warmup, fmt.Sprintf("0 to %d", MaxCount))
	case o.Frames != nil:
		return o.checkFrames()
	case o.Payload < 1 || o.Payload > pipeline.MaxFrame:
		return bad("payload", o.Payload, fmt.Sprintf("1 to %d bytes", pipeline.MaxFrame))
	case o.Count < 1 || o.Count > MaxCount:
		return bad("count", o.Count, fmt.Sprintf("1 to %d", MaxCount))
	case o.Warmup < 0 || o.Warmup > MaxCount:
		return bad("warm-up", o.Warmup, fmt.Sprintf("0 to %d", MaxCount))
	case o.Gap < 0 || o.Gap > MaxGap:
		return bad("gap", o.Gap.Microseconds(), "0 to 1000000 us")
	case o.Server < 0 || o.Server > MaxGap || o.Server > 0 && !o.Fetch:
		return bad("server", o.Server.Microseconds(), "0 to 1000000 us, of a fetch")
	case o.Fetch && (o.Gap != 0 || o.Bidirectional):
		return bad("fetch", o.Fetch, "neither gaps nor a stream of the second host")
	}
	if o.Trunk != nil {
		if err := o.Trunk.check(o); err != nil {
			return err
		}
	}
	for _, c := range o.Changes {
		if c.Engine >= dmalog.Engines || !(c.Overhead >= 0.01 && c.Overhead <= 100) || !(c.Bandwidth >= 0.01 && c.Bandwidth <= 100) {
			return bad("change", c, "an engine and factors from 0.01 to 100")
		}
	}
	return nil
}

// Result of a run. Times are from the moment the first measured frame is posted.
type Result struct {
	Latency   profile.Time    // first measured frame, one way, from posting to the receiving program
	Request   profile.Time    // of a fetch: the request for that frame, likewise
	Fetched   profile.Time    // of a fetch: from posting the request until the frame is there
	Delivered []profile.Time  // latency of each measured frame of the first flow
	Bandwidth float64         // MB/s, over the second half of the frames, sum of all flows
	Busy      [2]profile.Time // each host's bus, measured frames only: transferring, overhead included
	Transfers int             // of all engines, warm-up included
	Senders   []Sender        // of a trunk
	Holds     []Hold          // of a trunk, with Log: by time
	Log       []dmalog.Record // payloads, and requests of a fetch
	Control   []dmalog.Record // the control messages ahead of payloads: netTx and netRcv have a transfer for each
}
