package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// outbox has the NIC's buffers for frames that leave, where transfers take their time: hostTx moves the newest
// frame in while netTx moves the oldest on (patent, figure 5). A frame counts as sent for its
// connection once all of it is in the NIC.
type outbox struct {
	t       *Transmitter
	frames  []leaving     // by buffer
	newest  *leaving      // that hostTx moves in
	due     time.Duration // when it has moved its next burst
	moving  bool          // netTx is
	busy    bool          // the wire is
	out     []byte        // the wire's, for the oldest frame; nil if there is none
	copied  int           // bytes of the frame in it
	asked   uint32        // number of the oldest frame that the host was asked about
	hosted  bool          // it was
	moves   bool          // something is under way on the wire that needs nothing but time
	instant bool          // hostTx takes no time

	published bool // the peer may have read some of the oldest frame
}

// leaving is a frame in a buffer.
type leaving struct {
	memory  []byte // as long as the largest frame
	buf     []byte
	at      int // where the payload starts; zero in a raw frame
	sent    int // bytes of the payload that netTx was given
	to      datasheet.MAC
	void    bool // it has been given up
	dropped bool // by a program, when it was whole
}

func (x *outbox) clear() {
	if x.published {
		x.t.progressive.Abort()
	}
	for i := range x.frames {
		x.frames[i] = leaving{memory: x.frames[i].memory}
	}
	x.t.Bus.release(Transmit)
	x.newest, x.moving, x.busy, x.out, x.copied, x.published = nil, false, false, nil, 0, false
	x.hosted, x.moves = false, false
}

// empty reports whether no frame is in the buffers.
func (x *outbox) empty() bool { return x.t.DMA.Movers[Transmit].Frames() == 0 }

// Moving reports whether transfers go on, whose ends wake no thread.
func (x *outbox) Moving() bool { return x.moves || x.t.Held && !x.instant }

// frame returns room for a data frame to a station, of n bytes of payload behind at others. It is
// nil if hostTx or its bus is busy, the NIC has no buffer, or the wire takes no frame without a payload now.
func (x *outbox) frame(to *datasheet.MAC, at, n int) []byte {
	t := x.t
	if n == 0 {
		if !x.empty() {
			return nil // it would overtake others of its connection
		}
		return t.Reserve(to, at)
	}
	tx := t.DMA.Movers[Transmit]
	if t.Held || t.Waiting&filterTransmit != 0 || !tx.CanStart() || !t.Bus.acquire(Transmit) {
		return nil
	}
	f := &x.frames[tx.Buffer()]
	return f.memory[:at+n]
}

// start begins to move the frame in hand into the NIC.
func (x *outbox) start(behind int) Outcome {
	t, tx := x.t, x.t.DMA.Movers[Transmit]
	o := &t.Outgoing
	f := &x.frames[tx.Buffer()]
	*f = leaving{memory: f.memory, buf: o.Buf, at: int(o.at), to: o.Ep.Remote.MAC}
	_ = tx.Start(int(o.Length), behind) // frame has asked whether it can
	x.newest, t.Held = f, true
	x.due = t.Read() + t.Bus.Setup + x.takes(0)
	return x.gather()
}

// gather moves what has had its time of the newest frame into the NIC, and has netTx look after each burst.
func (x *outbox) gather() Outcome {
	t, tx := x.t, x.t.DMA.Movers[Transmit]
	o := &t.Outgoing
	shown := t.Asks(HookFilterTransmit) // to which no part goes before it
	for o.Gathered < o.Length {
		if !x.fetched() {
			return FrameWaiting
		}
		if st := t.gather(); st != 0 {
			return t.fail(st)
		}
		if !shown && o.Gathered < o.Length {
			_ = tx.Arrived(int(o.Gathered))
			x.drain()
			t.DMA.report(Transmit)
		}
	}
	if st := x.check(shown); st != 0 {
		return t.fail(st)
	}
	t.Bus.release(Transmit)
	t.Held, x.newest = false, nil
	_ = tx.Arrived(int(o.Length))
	t.DMA.report(Transmit)
	t.Progress++
	o.Ep.Delivery.Sent(o.Ep, o.M, o.psn, o.offset, o.Length, o.credit, o.retry)
	x.drain()
	return FrameSent
}

// fetched reports whether hostTx has had the time for its next burst.
func (x *outbox) fetched() bool {
	t, o := x.t, &x.t.Outgoing
	if x.instant {
		return true
	}
	if t.Read() < x.due {
		return false
	}
	if next := o.Gathered + uint32(t.DMA.config.Burst); next < o.Length {
		x.due += x.takes(next)
	}
	return true
}

// takes is the time of the burst that starts at a byte of the frame in hand.
func (x *outbox) takes(from uint32) time.Duration {
	return x.t.Bus.Takes(int(min(x.t.Length-from, uint32(x.t.DMA.config.Burst))))
}

// check judges a frame that is whole: a raw one must not be of our protocol, and a program may drop it.
func (x *outbox) check(filtered bool) datasheet.Status {
	t, o := x.t, &x.t.Outgoing
	raw := o.at == 0
	if raw && !IsRaw(o.Buf) {
		return datasheet.StatusFormatError
	}
	keeps := !filtered || t.filter(o.Buf, o.Ep.ID) && (!raw || IsRaw(o.Buf))
	if t.Dropped = !keeps; t.Dropped {
		x.newest.dropped = true
		t.Count(datasheet.CounterFramesDropped, 1)
	}
	return 0
}

// giveUp drops the frame that hostTx moves. What the peer has of it is void.
func (x *outbox) giveUp() {
	x.t.Bus.release(Transmit)
	if f := x.newest; f != nil {
		f.void, x.newest = true, nil
		x.t.DMA.Movers[Transmit].Void()
		x.drain()
	}
}

// drain is netTx: it moves on what the policy lets go of the oldest frames while the wire has room. It
// reports whether anything moved.
func (x *outbox) drain() (moved bool) {
	t, tx := x.t, x.t.DMA.Movers[Transmit]
	for {
		moved = x.watch() || moved
		if x.busy || x.moving || x.empty() || t.Waiting&TransmitHooks != 0 {
			return moved
		}
		f := &x.frames[tx.Oldest()]
		if f.void || f.dropped {
			x.skip()
			moved = true
			continue
		}
		x.ask()
		if !x.reserve(f) {
			return moved
		}
		n, last := tx.Next()
		if n == 0 {
			return moved
		}
		f.sent += n
		x.pass(f, last)
		moved = true
	}
}

// skip takes the oldest frame out of its buffer.
func (x *outbox) skip() {
	if x.published {
		x.t.progressive.Abort()
	}
	x.out, x.copied, x.published = nil, 0, false
	x.t.DMA.Movers[Transmit].Drop()
	x.t.DMA.report(Transmit)
}

// ask gives the host its time for a frame that has become the oldest, and looks whether that has passed.
func (x *outbox) ask() {
	t, tx := x.t, x.t.DMA.Movers[Transmit]
	if !tx.Hosted() {
		x.hosted = false
		return
	}
	if n := tx.Asked(); !x.hosted || n != x.asked {
		x.hosted, x.asked = true, n
		t.DMA.hold(Transmit)
		t.DMA.report(Transmit)
	}
	t.DMA.checkPulses(Transmit)
}

// reserve reserves room on the wire for the oldest frame, unless it has it.
func (x *outbox) reserve(f *leaving) bool {
	if x.out == nil || !x.published {
		// Other frames may have been sent since.
		if x.t.Peers != nil {
			x.t.Peers.SetDestination(f.to)
		}
		x.out = x.t.Port.Reserve(len(f.buf))
	}
	return x.out != nil
}

// pass gives the wire what netTx has been given of the oldest frame.
func (x *outbox) pass(f *leaving, last bool) {
	t, end := x.t, f.at+f.sent
	if last {
		end = len(f.buf)
	}
	out := x.out
	copy(out[x.copied:end], f.buf[x.copied:end])
	x.copied, x.moving = end, true
	switch {
	case last && f.at != 0:
		t.commit(out)
	case last:
		if t.Hooks&Watching != 0 {
			t.Show(true, out)
		}
		t.HandOver(len(out))
	case t.pieces && f.at != 0:
		x.published = true
		t.progressive.Publish(end)
	}
	if last {
		x.out, x.copied, x.published = nil, 0, false
	}
}

// watch looks whether netTx still moves bytes. It reports whether a transfer has ended.
func (x *outbox) watch() (ended bool) {
	t := x.t
	busy, all := time.Duration(0), time.Duration(0)
	if t.paced != nil {
		busy, all = t.paced.Left()
	}
	x.busy = busy > 0
	if ended = x.moving && !x.busy; ended {
		x.moving = false
		_ = t.DMA.Movers[Transmit].Done()
		t.DMA.report(Transmit)
	}
	x.moves = all > time.Nanosecond
	if t.Events |= Leaving; all <= 0 && x.empty() {
		t.Events &^= Leaving
	}
	return ended
}
