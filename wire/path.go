package wire

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// ErrStalled: the sender of a frame stalled in the middle of it for longer than the watchdog
// of the switch allows.
var ErrStalled = errors.New("the sender stalls in the middle of a frame")

// PathError reports a frame that was cut short in a switch.
type PathError struct {
	Station        datasheet.MAC // the sender
	From, To       int           // ports of the switch
	Passed, Length int           // bytes of the frame
	Err            error         // ErrStalled: the sender; ErrGone: the output was closed or unplugged
}

func (e *PathError) Error() string {
	return fmt.Sprintf("switch: frame of station %v from port %d to port %d, %d of %d bytes: %v", e.Station, e.From, e.To, e.Passed, e.Length, e.Err)
}

// Unwrap returns Err.
func (e *PathError) Unwrap() error { return e.Err }

// SwitchStats are the counters of a port of a switch since it was made. A frame that comes
// whole counts nowhere.
type SwitchStats struct {
	CutThrough uint64 `json:"cut_through" help:"Frames that came in parts, and could leave at this port while they still arrived." unit:"frames"`
	Waited     uint64 `json:"waited" help:"Frames of other ports that waited for such a frame to end." unit:"frames"`
	Stalled    uint64 `json:"stalled" help:"Such frames that the watchdog ended, since their sender stalled." unit:"frames"`
	Broken     uint64 `json:"broken" help:"Such frames that their sender gave up, or that ended with its link." unit:"frames"`
	Lost       uint64 `json:"lost" help:"Frames from this port whose output was closed or unplugged under way, for each output." unit:"frames"`
}

type switchCounts struct{ cutThrough, waited, stalled, broken, lost atomic.Uint64 }

// Stats returns the counters of the port. It may be called from any goroutine.
func (p *switchPort) Stats() SwitchStats {
	c := &p.counts
	return SwitchStats{c.cutThrough.Load(), c.waited.Load(), c.stalled.Load(), c.broken.Load(), c.lost.Load()}
}

// ports is a set of ports, a bit each.
type ports uint32

func (s ports) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros32(uint32(s))) {
				return
			}
		}
	}
}

// path is the way of the frame that this port sends in parts.
type path struct {
	open    bool // some of it has been shown
	targets ports
	shown   int // bytes
}

// Publish passes the frame on once both addresses are there.
func (p *switchPort) Publish(n int) {
	f := p.frame
	if n <= p.path.shown || n > len(f) || n < min(ethernetHeader, len(f)) {
		return
	}
	if !p.path.open {
		p.path.open, p.path.targets = true, p.route(f)
		for to := range p.path.targets.all() {
			if p.tx[to].Reserve(len(f)) == nil { // it was unplugged when the frame was reserved
				p.lose(to)
			}
		}
	}
	p.forward(n)
}

// forward lets the outputs have the first n bytes of the frame.
func (p *switchPort) forward(n int) {
	live := ports(p.fabric.live())
	if live&(1<<p.number) == 0 {
		p.Abort()
		return
	}
	for to := range p.path.targets.all() {
		r := &p.tx[to]
		if live&(1<<to) == 0 {
			r.Abort()
			p.lose(to)
			continue
		}
		copy(r.Space()[p.path.shown:n], p.frame[p.path.shown:n])
		if r.Show(n) {
			p.wakes(to)
		}
	}
	p.path.shown = n
}

// lose goes on without an output.
func (p *switchPort) lose(to int) {
	p.path.targets &^= 1 << to
	p.counts.lost.Add(1)
	p.failed.Store(&PathError{senderOf(p.frame), p.number, to, p.path.shown, len(p.frame), ErrGone})
}

// finish ends the frame that was shown: all of it is there.
func (p *switchPort) finish() {
	p.forward(len(p.frame))
	for to := range p.path.targets.all() {
		p.tx[to].Finish()
		p.wakes(to)
	}
	p.frame, p.path = nil, path{}
}

func (p *switchPort) Abort() {
	for to := range p.path.targets.all() {
		p.tx[to].Abort()
		p.wakes(to)
	}
	p.frame, p.path = nil, path{}
}

// output has the state of the frame that a port has received and not released.
type output struct {
	held  bool          // the frame came in parts: it holds the port
	seen  int           // bytes of it, at the last look
	grew  time.Duration // when there were more than before, on the clock
	ended bool          // the rest does not come
}

// started is the origin of the clock of all switches.
var started = time.Now()

// hold takes note that the frame that has come first from a port holds this one, if it comes
// in parts.
func (p *switchPort) hold(r *line.Receiver) {
	o := &p.output
	if o.held || r.Whole() {
		return
	}
	*o = output{held: true, grew: time.Since(started)}
	p.counts.cutThrough.Add(1)
}

// letGo frees the port for the next one.
func (p *switchPort) letGo() {
	if !p.output.held {
		return
	}
	p.output = output{}
	for i := range p.rx {
		if i != p.from && p.rx[i].Left() {
			p.counts.waited.Add(1)
		}
	}
}

// Arrived: a frame that has not arrived whole when its
// sender is closed or unplugged never will, nor does one whose sender stalls.
func (p *switchPort) Arrived() (n int, aborted bool) {
	r, o := &p.rx[p.from], &p.output
	n, gone := r.Progress()
	if !o.held {
		return n, false
	}
	frame := r.Take() // the one that is held
	if n == len(frame) && !gone && !o.ended {
		return n, false
	}
	if o.ended {
		return o.seen, true
	}
	now := time.Since(started)
	switch {
	case gone || p.fabric.live()&(1<<p.from) == 0:
		o.ended = true
		p.counts.broken.Add(1)
	case n > o.seen:
		o.grew = now
	case now-o.grew > p.fabric.watchdog:
		o.ended = true
		p.counts.stalled.Add(1)
		p.failed.Store(&PathError{senderOf(frame), p.from, p.number, n, len(frame), ErrStalled})
	}
	o.seen = n
	return n, o.ended
}

// senderOf returns the address of a frame's sender, zero if the frame is too short to have one.
func senderOf(frame []byte) (mac datasheet.MAC) {
	if len(frame) >= ethernetHeader {
		mac = datasheet.MAC(frame[6:])
	}
	return mac
}
