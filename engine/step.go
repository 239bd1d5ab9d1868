package engine

// Step does one round of work: it takes frames, doorbells and timers as they
// come and sends what can be sent. It reports whether there was anything to do.
// If another goroutine is in the engine, it returns false at once.
func (e *Engine) Step() bool {
	if !e.mu.TryLock() {
		return false
	}
	// Deferred: host memory that another process has taken away ends a round
	// with a panic, which the owner of the engine catches, and then calls Reset.
	defer e.mu.Unlock()
	return e.round()
}

// round asks each resource in turn what it could do now.
func (e *Engine) round() bool {
	if e.step++; e.step >= e.nextLook {
		e.look()
	}
	if e.waiting != 0 {
		e.checkSuspension()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	worked := e.bells.take()
	// What has been posted goes before what has come: a message that waits is late
	// already.
	worked = e.transmit() || worked
	if len(e.unsettled.members) > 0 {
		e.settleAll()
	}
	e.handed = false
	worked = e.receive() || worked
	if len(e.unsettled.members) > 0 && !e.handed {
		e.settleAll()
	}
	if len(e.owing.members) > 0 {
		worked = e.acknowledge() || worked
	}
	if len(e.fresh.members) > 0 {
		e.anticipate()
	}
	if e.waiting == 0 && e.due() {
		e.tick()
	}
	e.finish()
	return worked
}

// finish ends a step: what was only gathered goes out.
func (e *Engine) finish() {
	if len(e.cqs.doomed) > 0 {
		e.failDoomed()
	}
	e.flush()
	e.interrupt()
}

// flush lets the peers see the frames that were handed to the wire.
func (e *Engine) flush() {
	if e.committed {
		e.committed = false
		e.port.Flush()
	}
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.busy.keep(func(ep *endpoint) bool {
		r := ep.rel
		if r == nil || r.una == r.nxt && !r.stalled {
			return false
		}
		e.timeouts(ep)
		return true
	})
	e.requests.tick()
	e.tickSetup()
	if e.idleDue() {
		for _, ep := range e.endpoints {
			if ep != nil && ep.listed&onBusy == 0 {
				e.keepAlive(ep)
			}
		}
	}
}
