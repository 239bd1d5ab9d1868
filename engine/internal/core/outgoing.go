package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
)

// Start begins to move the frame in progress.
func (t *Transmitter) Start(behind int) Outcome {
	tx := t.DMA.Movers[Transmit]
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = tx.Start(int(t.Length), behind)
	if !t.Bus.Instant() {
		t.due = t.Read() + t.Bus.Setup + t.Bus.Takes(int(min(t.Length, uint32(t.DMA.config.Burst))))
	}
	if !tx.Hosted() {
		return t.feed()
	}
	t.DMA.hold(Transmit)
	result := t.feed()
	t.DMA.report(Transmit)
	return result
}

// feed has hostTx and netTx work on the frame that is being sent until it has
// left; if the host decides, until both have had a turn, and if transfers take their
// time, until both have to wait.
func (t *Transmitter) feed() Outcome {
	o, tx, timed := &t.Outgoing, t.DMA.Movers[Transmit], t.Timed
	for {
		n := min(o.Length-o.Gathered, uint32(t.DMA.config.Burst))
		if timed {
			n = t.fetched(n, o.Length-o.Gathered-n)
		}
		if n > 0 {
			at := o.at + o.Gathered
			if st := t.Regions.Gather(o.Buf[at:at+n], &o.M.Layout, o.offset+o.Gathered, o.Ep.Ptag); st != 0 {
				return t.fail(st)
			}
			o.Gathered += n
		}
		_ = tx.Arrived(int(o.Gathered)) // once all has arrived that is no news, and refused
		for !timed || t.mayMove() {
			n, last := tx.Next()
			if n == 0 {
				break
			}
			o.shown += uint32(n)
			if last {
				return t.finishFrame()
			}
			if t.pieces && o.at != 0 && !t.Asks(HookFilterTransmit) { // which is shown whole frames
				o.published = true
				if timed {
					t.passOn(int(o.at + o.shown))
				}
				t.progressive.Publish(int(o.at + o.shown))
			}
			if timed {
				t.moved()
			} else {
				_ = tx.Done()
			}
		}
		if o.Held = tx.Hosted() || timed && (n == 0 || o.Gathered == o.Length); o.Held {
			return FrameWaiting
		}
	}
}

// finishFrame hands the rest of the frame in progress to the wire.
func (t *Transmitter) finishFrame() Outcome {
	o := &t.Outgoing
	buf := o.Buf
	if t.Timed {
		buf = t.passOn(len(buf))
	}
	if o.at != 0 {
		t.Launch(buf)
	} else if st := t.LaunchRaw(o.Ep, buf); st != 0 {
		return t.fail(st)
	}
	if t.Timed {
		t.moved()
	} else {
		_ = t.DMA.Movers[Transmit].Done()
	}
	o.shown, o.published, o.Held, o.out, o.copied = 0, false, false, nil, 0
	o.Ep.Delivery.Sent(o.Ep, o.M, o.psn, o.offset, o.Length, o.credit, o.retry)
	return FrameSent
}

// fail gives up the frame in progress, whose message has failed.
func (t *Transmitter) fail(st datasheet.Status) Outcome {
	t.drop()
	t.Ep.Delivery.Failed(t.Ep, t.M, t.retry, st)
	return FrameFailed
}

// resume goes on with a frame that is held. It reports whether anything moved.
func (t *Transmitter) resume() bool {
	o := &t.Outgoing
	if t.Waiting&TransmitHooks != 0 {
		return false
	}
	if r := o.Ep.Flow; o.Ep.Era != o.Era || o.retry && o.psn-r.Una >= r.Nxt-r.Una {
		// The connection has ended, or the frame has arrived after all: its memory
		// may be the host's again.
		t.drop()
		return true
	}
	t.DMA.checkPulses(Transmit)
	gathered, shown := o.Gathered, o.shown
	moved := t.feed() != FrameWaiting || o.Gathered != gathered || o.shown != shown
	if moved {
		t.DMA.report(Transmit)
	}
	return moved
}

// drop gives up the frame that is being sent, if there is one.
func (t *Transmitter) drop() {
	if t.published {
		t.progressive.Abort()
	}
	t.shown, t.published, t.Held, t.out, t.copied = 0, false, false, nil, 0
	t.DMA.Movers[Transmit].Cancel()
	t.DMA.report(Transmit)
}

// Frame returns room for a data frame to a station, of n bytes of payload behind at others. It is
// nil if the wire takes no more now, or the NIC no other frame.
func (t *Transmitter) Frame(to *datasheet.MAC, at, n int) []byte {
	if !t.Timed || n == 0 {
		return t.Reserve(to, at+n)
	}
	if t.Held || t.Waiting&filterTransmit != 0 || t.busy && t.DMA.Movers[Transmit].Alone() {
		return nil
	}
	if t.stage == nil {
		t.stage = Aligned(int(t.mtu))
	}
	return t.stage[:at+n]
}

// fetched returns the part of hostTx's burst of n bytes that has been moved: all or
// nothing. The next one has at most rest bytes.
func (t *Transmitter) fetched(n, rest uint32) uint32 {
	if t.Bus.Instant() || n == 0 {
		return n
	}
	if t.Read() < t.due {
		return 0
	}
	t.due += t.Bus.Takes(int(min(rest, uint32(t.DMA.config.Burst))))
	return n
}

// mayMove, where transfers take their time, reports whether netTx is idle, and the wire has room for the frame in progress.
func (t *Transmitter) mayMove() bool {
	if t.busy {
		return false
	}
	if t.out == nil || !t.published {
		// Other frames may have been sent since.
		if t.Peers != nil {
			t.Peers.Toward(t.Ep.Remote.MAC)
		}
		t.out = t.Port.Reserve(len(t.Buf))
	}
	return t.out != nil
}

// passOn gives the wire the first n bytes of the frame in progress. It returns the wire's
// frame.
func (t *Transmitter) passOn(n int) []byte {
	copy(t.out[t.copied:n], t.Buf[t.copied:n])
	t.copied = n
	return t.out
}

// moved notes that the transfer which netTx has begun is the wire's.
func (t *Transmitter) moved() {
	tx := t.DMA.Movers[Transmit]
	_ = tx.Away()
	t.watch()
}

// watch looks whether netTx still moves bytes. It reports whether a transfer has ended.
func (t *Transmitter) watch() (ended bool) {
	busy, all := time.Duration(0), time.Duration(0)
	if t.paced != nil {
		busy, all = t.paced.Left()
	}
	if t.busy = busy > 0; !t.busy {
		if ended = t.DMA.Movers[Transmit].Ended(); ended {
			t.DMA.report(Transmit)
		}
	}
	t.Coming = all > time.Nanosecond
	if t.Events |= Leaving; all <= 0 {
		t.Events &^= Leaving
	}
	return ended
}

// pace has a transmitter's knowledge of transfers that take their time: those of hostTx by the
// speed of the bus, those of netTx by that of the wire. The frame in progress is then
// gathered into the NIC's memory while the one before leaves the wire.
type pace struct {
	Bus   speed.Path
	stage []byte        // takes the frame in progress
	due   time.Duration // when hostTx has moved its next burst
	busy  bool          // netTx is
	// Coming says that something is under way on the wire that needs nothing but time.
	Coming bool
}

// placement is the transfer of a hostRcv whose bus has a speed.
type placement struct {
	bus   speed.Path
	Moves int  // bytes of the transfer under way
	ends  bool // the frame ends with it
	until time.Duration
}
