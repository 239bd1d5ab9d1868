package engine

import "time"

// hostBus is the way between host and NIC, and how fast it is.
type hostBus struct {
	rate  int64         // bytes per second; zero: no limit
	setup time.Duration // of a transfer
}

// instant says that transfers take no time but the machine's own.
func (b hostBus) instant() bool { return b == hostBus{} }

// takes is how long n bytes take once a transfer has begun.
func (b hostBus) takes(n uint32) time.Duration {
	if b.rate == 0 {
		return 0
	}
	return time.Duration((int64(n)*int64(time.Second) + b.rate - 1) / b.rate)
}

// pace is what a transmitter knows of transfers that take their time: those of hostTx by the
// speed of the bus, those of netTx by that of the wire. The frame in progress is then
// gathered into the NIC's memory while the one before leaves the wire.
type pace struct {
	bus   hostBus
	stage []byte        // takes the frame in progress
	due   time.Duration // when hostTx has moved its next burst
	busy  bool          // netTx is
	// coming says that something is under way on the wire that needs nothing but time.
	coming bool
}

// frame returns room for a data frame of n bytes of payload behind at others. It is nil if
// the wire takes no more now, or the NIC no other frame.
func (t *transmitter) frame(at, n int) []byte {
	if !t.timed || n == 0 {
		return t.reserve(at + n)
	}
	if t.held || t.waiting&filterTransmit != 0 || t.busy && t.dma.movers[Transmit].Alone() {
		return nil
	}
	if t.stage == nil {
		t.stage = aligned(int(t.mtu))
	}
	return t.stage[:at+n]
}

// beginGather has hostTx begin with the frame in progress.
func (t *transmitter) beginGather() {
	if !t.bus.instant() {
		t.due = t.read() + t.bus.setup + t.bus.takes(min(t.length, uint32(t.dma.config.Burst)))
	}
}

// fetched is how much of the burst of n bytes, at which hostTx is, has been moved: all or
// nothing. The next one has at most rest bytes.
func (t *transmitter) fetched(n, rest uint32) uint32 {
	if t.bus.instant() || n == 0 {
		return n
	}
	if t.read() < t.due {
		return 0
	}
	t.due += t.bus.takes(min(rest, uint32(t.dma.config.Burst)))
	return n
}

// mayMove reports whether netTx is idle, and the wire has room for the frame in progress.
func (t *transmitter) mayMove() bool {
	if !t.timed {
		return true
	}
	if t.busy {
		return false
	}
	if t.out == nil || !t.published {
		// Other frames may have been sent since.
		t.out = t.port.Reserve(len(t.buf))
	}
	return t.out != nil
}

// passOn gives the wire the first n bytes of the frame in progress. It returns the wire's
// frame.
func (t *transmitter) passOn(n int) []byte {
	if !t.timed {
		return t.buf
	}
	copy(t.out[t.copied:n], t.buf[t.copied:n])
	t.copied = n
	return t.out
}

// moved notes that the transfer which netTx has begun is the wire's.
func (t *transmitter) moved() {
	tx := t.dma.movers[Transmit]
	if !t.timed {
		_ = tx.Done()
		return
	}
	_ = tx.Away()
	t.watch()
}

// watch looks whether netTx still moves bytes. It reports whether a transfer has ended.
func (t *transmitter) watch() (ended bool) {
	busy, all := time.Duration(0), time.Duration(0)
	if t.paced != nil {
		busy, all = t.paced.Left()
	}
	if t.busy = busy > 0; !t.busy {
		if ended = t.dma.movers[Transmit].Ended(); ended {
			t.dma.report(Transmit)
		}
	}
	t.coming = all > time.Nanosecond
	if t.events |= leaving; all <= 0 {
		t.events &^= leaving
	}
	return ended
}

// placement is the transfer of a hostRcv whose bus has a speed.
type placement struct {
	bus   hostBus
	moves int  // bytes of the transfer under way
	ends  bool // the frame ends with it
	until time.Duration
}

// nextPlaced is Mover.Next of the receiver: it answers when the bytes have had their time.
func (r *receiver) nextPlaced() (n int, last bool) {
	p, rx := &r.placement, r.dma.movers[Receive]
	if p.bus.instant() {
		return rx.Next()
	}
	if p.moves == 0 {
		if p.moves, p.ends = rx.Next(); p.moves == 0 {
			return 0, false
		}
		p.until = r.clock.read() + p.bus.setup + p.bus.takes(uint32(p.moves))
	}
	if r.clock.read() < p.until {
		return 0, false
	}
	n, p.moves = p.moves, 0
	return n, p.ends
}

// Timed reports whether transfers take their time, by the wire or by the bus.
func (e *Engine) Timed() bool { return e.timed }

// Moving reports whether transfers go on, whose ends nobody is told of: who runs the engine
// steps it again at once. Its answer is false if transfers take no time.
func (e *Engine) Moving() bool {
	if !e.timed {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tx.coming || e.tx.held && e.tx.gathered < e.tx.length && !e.tx.bus.instant() || e.rx.placing && e.rx.moves > 0
}
