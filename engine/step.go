package engine

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
	worked = e.tx.transmit() || worked
	if len(e.unsettled.members) > 0 {
		e.settleAll()
	}
	e.handed = false
	flying, taken := !e.flight.empty(), uint32(0)
	if flying {
		e.checkWire()
		taken = e.lossless.Taken()
	}
	worked = e.rx.receive() || worked
	if flying && !e.rx.behind {
		// What the peer had to say before it took these frames has been heard.
		e.takeFlight(taken)
	}
	if len(e.unsettled.members) > 0 && !e.handed {
		e.settleAll()
	}
	if len(e.acks.members) > 0 {
		worked = e.conns.sendAcks() || worked
	}
	if len(e.prefetch.members) > 0 {
		e.prefetchAll()
	}
	if e.waiting == 0 && e.due() {
		e.tick()
	}
	e.finish()
	return worked
}

// finish ends a step: what was only gathered goes out.
func (e *Engine) finish() {
	for len(e.cqs.failed) > 0 {
		cq := e.cqs.failed[0]
		e.cqs.failed = e.cqs.failed[1:]
		e.failUsers(cq)
	}
	e.tx.flush()
	if e.vectors != 0 {
		e.interrupt()
	}
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	e.busy.keep(func(ep *endpoint) bool {
		r := ep.rel
		if r == nil || r.una == r.nxt && !r.stalled {
			return false
		}
		r.timeouts()
		return true
	})
	e.requests.tick()
	e.setups.tick()
	if e.idleDue() {
		e.checkWire()
		for _, ep := range e.all {
			if ep != nil && ep.listed&onBusy == 0 {
				e.conns.keepAlive(ep)
			}
		}
	}
}
