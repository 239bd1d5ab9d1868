package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Step does one round of work: it takes frames, doorbells and timers as they
// come and sends what can be sent. It reports whether there was anything to do.
// If another goroutine is in the engine, it returns false at once.
func (e *Engine) Step() bool {
	if !e.mu.TryLock() {
		return false
	}
	// It is deferred: host memory that another process has taken away ends a round
	// with a panic, which the owner of the engine catches, and then calls Reset.
	defer e.mu.Unlock()
	return e.round()
}

// afterFrames are the events that a round looks at once it has taken frames.
const afterFrames = onUnsettled | onAcks | brokenQueue | unflushed | interrupts

// round does what there is to do. Without events it costs a look at the wire, and one
// at doorbells that others may have stored.
func (e *Engine) round() (worked bool) {
	e.carried = 0
	if e.step++; e.step >= e.nextLook {
		e.look()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	if e.bells.last.Load() != 0 || len(e.bells.mapped) != 0 {
		worked = e.bells.take()
	}
	// What has been posted goes before what has come: a message that waits is late
	// already.
	if e.events&suspended != 0 {
		e.checkSuspension()
	}
	if e.events&(onReady|leaving) != 0 {
		worked = e.tx.transmit() || worked
	}
	if e.events&onUnsettled != 0 {
		e.vis.settleAll()
	}
	if e.events&onCells != 0 {
		worked = e.cells.run() || worked
	}
	e.handed = false
	worked = e.rx.receive() || worked
	if e.events&onCells != 0 {
		worked = e.cells.runUpTo(0) || worked // bulk has had its turn in this round
	}
	if e.events&inFlight != 0 && !e.rx.behind {
		// What the peer had to say before it took frames, or left, has been heard.
		e.vis.takeFlights()
	}
	if e.events&afterFrames != 0 || e.now >= e.nextTick {
		worked = e.finish() || worked
	}
	return worked
}

// finish ends a round: what was only gathered goes out.
func (e *Engine) finish() (worked bool) {
	if e.events&onUnsettled != 0 && !e.handed {
		e.vis.settleAll()
	}
	if e.events&onAcks != 0 {
		worked = e.conns.sendAcks()
	}
	if e.waiting == 0 && e.due(&e.nextTick, tickEvery) {
		e.tick()
	}
	if e.events&brokenQueue != 0 {
		e.failQueues()
	}
	e.tx.flush()
	if e.events&interrupts != 0 {
		e.interrupt()
	}
	return worked
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.vis.tick()
	e.requests.tick()
	e.setups.tick()
	e.cells.tick()
	if e.due(&e.nextIdle, idleEvery) {
		if !e.rx.behind {
			e.vis.checkWires()
		}
		for _, ep := range e.living {
			l := ep.alive
			if l == nil || ep.listed&onBusy != 0 {
				continue // there is nobody, or timeouts looks after the peer
			}
			if e.now-l.heard > e.timing.Probe {
				e.conns.probe(ep, l)
			}
			e.conns.expire(ep, l)
		}
	}
}

// failQueues ends the endpoints whose completion queue has lost an entry.
func (e *Engine) failQueues() {
	for ; len(e.cqs.failed) > 0; e.cqs.failed = e.cqs.failed[1:] {
		cq := e.cqs.failed[0]
		for _, ep := range e.living {
			if ep.send.cq != cq && (ep.recv.cq != cq || ep.recv.named && ep.recv.source == nil) {
				continue
			}
			switch ep.state {
			case datasheet.StateConnected:
				e.conns.fail(ep, datasheet.StatusFlushed, datasheet.ResultResource, true)
			case datasheet.StateConnectPending:
				e.setups.end(ep, datasheet.ResultResource)
				e.conns.enterError(ep, datasheet.StatusFlushed)
			case datasheet.StateIdle:
				e.conns.enterError(ep, datasheet.StatusFlushed)
			}
		}
	}
	e.events &^= brokenQueue
}
