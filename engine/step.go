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
	e.core.carried = 0
	if e.core.step++; e.core.step >= e.core.nextLook {
		e.core.look()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	if e.core.bells.last.Load() != 0 || len(e.core.bells.mapped) != 0 {
		worked = e.core.bells.take()
	}
	// What has been posted goes before what has come: a message that waits is late
	// already.
	if e.core.events&suspended != 0 {
		e.checkSuspension()
	}
	if e.core.events&(onReady|leaving) != 0 {
		worked = e.core.tx.transmit() || worked
	}
	if e.core.events&onUnsettled != 0 {
		e.vis.settleAll()
	}
	if e.core.events&onCells != 0 {
		worked = e.cells.run() || worked
	}
	e.core.handed = false
	worked = e.core.rx.receive() || worked
	if e.core.events&onCells != 0 {
		worked = e.cells.runUpTo(0) || worked // bulk has had its turn in this round
	}
	if e.core.events&inFlight != 0 && !e.core.rx.behind {
		// What the peer had to say before it took frames, or left, has been heard.
		e.vis.takeFlights()
	}
	if e.core.events&afterFrames != 0 || e.core.now >= e.core.nextTick {
		worked = e.finish() || worked
	}
	return worked
}

// finish ends a round: what was only gathered goes out.
func (e *Engine) finish() (worked bool) {
	if e.core.events&onUnsettled != 0 && !e.core.handed {
		e.vis.settleAll()
	}
	if e.core.events&onAcks != 0 {
		worked = e.core.conns.sendAcks()
	}
	if e.core.waiting == 0 && e.core.due(&e.core.nextTick, tickEvery) {
		e.tick()
	}
	if e.core.events&brokenQueue != 0 {
		e.failQueues()
	}
	e.core.tx.flush()
	if e.core.events&interrupts != 0 {
		e.core.interrupt()
	}
	return worked
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.vis.tick()
	e.core.requests.tick()
	e.core.setups.tick()
	e.cells.tick()
	if e.core.due(&e.core.nextIdle, idleEvery) {
		if !e.core.rx.behind {
			e.vis.checkWires()
		}
		for _, ep := range e.core.living {
			l := ep.alive
			if l == nil || ep.listed&onBusy != 0 {
				continue // there is nobody, or timeouts looks after the peer
			}
			if e.core.now-l.heard > e.core.timing.Probe {
				e.core.conns.probe(ep, l)
			}
			e.core.conns.expire(ep, l)
		}
	}
}

// failQueues ends the endpoints whose completion queue has lost an entry.
func (e *Engine) failQueues() {
	for ; len(e.core.cqs.failed) > 0; e.core.cqs.failed = e.core.cqs.failed[1:] {
		cq := e.core.cqs.failed[0]
		for _, ep := range e.core.living {
			if ep.send.cq != cq && (ep.recv.cq != cq || ep.recv.named && ep.recv.source == nil) {
				continue
			}
			switch ep.state {
			case datasheet.StateConnected:
				e.core.conns.fail(ep, datasheet.StatusFlushed, datasheet.ResultResource, true)
			case datasheet.StateConnectPending:
				e.core.setups.end(ep, datasheet.ResultResource)
				e.core.conns.enterError(ep, datasheet.StatusFlushed)
			case datasheet.StateIdle:
				e.core.conns.enterError(ep, datasheet.StatusFlushed)
			}
		}
	}
	e.core.events &^= brokenQueue
}
