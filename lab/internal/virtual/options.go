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
	"slices"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Limits of one run.
const (
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

// BesideCopy makes the hostTx of one frame run beside a copy by the host's processor, which takes a share of the bus from it.
func BesideCopy(frame int, share float64) []Change {
	return []Change{
		{Frame: frame, Engine: dmalog.HostTx, Overhead: 1, Bandwidth: 1 - share},
		{Frame: frame + 1, Engine: dmalog.HostTx, Overhead: 1, Bandwidth: 1 / (1 - share)},
	}
}

// Options of a run. Who makes them has checked what a user gave.
type Options struct {
	Profile *profile.Profile
	Plan    pipeline.Plan

	// Frames are those of a log, in place of Payload, Count and Gap, which are zero then: one
	// direction, in the order of their posting.
	Frames []Frame
	// Burst is the number of bytes of a frame that an incoming engine moves before it says so, 1 to
	// pipeline.MaxFrame. With 0 its progress counter shows every byte.
	Burst int

	Payload       int          // bytes of each frame, 1 to pipeline.MaxFrame
	Count         int          // frames in each direction, 1 or more
	Gap           profile.Time // between postings; 0 = as fast as the host can
	Random        bool         // gaps are exponential with mean Gap instead of equal
	Seed          uint64       // of the random gaps
	Bidirectional bool         // the second host sends as many frames as the first

	// Warmup frames go first, one by one on an idle system, and are not measured:
	// policies that learn see them.
	Warmup int

	// Trunk has several hosts send, each to one of its own, over one link between two
	// switches. It goes without Bidirectional.
	Trunk *Trunk

	Changes  []Change
	Log      bool // keep a record of each transfer
	LogCosts bool // the firmware keeps one itself, and pays for it what the profile says
}

// Request returns how long a control message that asks for a page takes one way, over an idle system, and its transfers. The
// host has put it into NIC memory by programmed I/O, so that no host transfer shows, and it needs no receive buffer. The
// page itself takes as long as an unasked one.
func (o *Options) Request() (profile.Time, []dmalog.Record) {
	p := o.Profile
	issued := p.Host/2 + p.NIC.Decision + p.NIC.Packet
	from := issued + p.Link.Pulse.Overhead
	left := from + p.Link.Pulse.Bytes(p.Link.Header)
	came := left + p.Link.Latency
	log := []dmalog.Record{
		{Engine: dmalog.NetTx, Start: int64(issued), End: int64(left), Bytes: p.Link.Header},
		{Engine: dmalog.NetRcv, Start: int64(from + p.Link.Latency), End: int64(came), Bytes: p.Link.Header},
	}
	taken := came + p.NIC.Packet
	if o.LogCosts {
		taken += p.NIC.LogReceive
	}
	return taken + p.Host - p.Host/2, log
}

// Frame is one of a log.
type Frame struct {
	Posted profile.Time // since the first one
	Bytes  int          // 1 to pipeline.MaxFrame
}

// AsLive returns the log as a live NIC keeps it: the control message is part of netTx's first transfer of a frame.
func (r *Result) AsLive() []dmalog.Record {
	began := map[[2]int]int64{}
	for _, c := range r.Control {
		if c.Engine == dmalog.NetTx {
			began[[2]int{c.Flow, c.Packet}] = c.Start
		}
	}
	log := slices.Clone(r.Log)
	for i := range log {
		c := [2]int{log[i].Flow, log[i].Packet}
		if start, ok := began[c]; ok && log[i].Engine == dmalog.NetTx {
			log[i].Start = start
			delete(began, c)
		}
	}
	return log
}

// Result of a run. Times are from the moment the first measured frame is posted.
type Result struct {
	Latency   profile.Time    // first measured frame, one way, from posting to the receiving program
	Delivered []profile.Time  // latency of each measured frame of the first flow
	Bandwidth float64         // MB/s, over the second half of the frames, sum of all flows
	Busy      [2]profile.Time // each host's bus, measured frames only: transferring, overhead included
	Transfers int             // of all engines, warm-up included
	Senders   []Sender        // of a trunk
	Holds     []Hold          // of a trunk, with Log: by time
	Log       []dmalog.Record // payloads
	Control   []dmalog.Record // the control messages ahead of payloads: netTx and netRcv have a transfer for each
}
