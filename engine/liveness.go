package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// silentProbes is how often a silent peer is asked before it is given up: with
// half of all frames lost each way, one connection in 10,000 is given up wrongly.
const silentProbes = 32

// liveness is what is known of a peer's life (SPEC.md 8.5).
type liveness struct {
	heard  time.Duration // when the peer was heard last
	silent time.Duration // clock.present since which a question is unanswered; zero: none is
}

// liveness of the connection's peer, nil if there is none that answers probes.
func (ep *endpoint) liveness() *liveness {
	switch {
	case ep.rel != nil:
		return &ep.rel.liveness
	case ep.unrel != nil && ep.unrel.probes:
		return &ep.unrel.liveness
	}
	return nil
}

// hear notes that the peer lives.
func (l *liveness) hear(c *clock) { l.heard, l.silent = c.now, 0 }

// unheard notes that a question is unanswered.
func (l *liveness) unheard(c *clock) {
	if l.silent == 0 {
		l.silent = c.present()
	}
}

// dead reports whether the peer has left questions unanswered for longer than limit.
func (l *liveness) dead(c *clock, limit time.Duration) bool {
	return l.silent != 0 && c.present()-l.silent > limit
}

// keepAlive looks after a connection on which nothing is under way that the peer
// acknowledges.
func (e *Engine) keepAlive(ep *endpoint) {
	l := ep.liveness()
	if l == nil {
		return
	}
	if e.now-l.heard > e.timing.Probe {
		e.ask(ep, l)
	}
	e.giveUp(ep, l)
}

// ask sends a probe.
func (e *Engine) ask(ep *endpoint, l *liveness) {
	l.unheard(&e.clock)
	e.sendAck(ep, descriptors.FrameProbe)
}

// giveUp ends a connection whose peer is dead.
func (e *Engine) giveUp(ep *endpoint, l *liveness) {
	if l.dead(&e.clock, e.timing.Dead) {
		e.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, true)
	}
}

// timeouts looks after a connection with frames under way or without credit.
func (e *Engine) timeouts(ep *endpoint) {
	r := ep.rel
	switch {
	case r.una == r.nxt:
		if r.seekCredit() {
			e.ask(ep, &r.liveness)
		}
	case r.retransmitAt == 0:
		r.startTimer()
	case e.now >= r.retransmitAt:
		if r.unanswered() {
			e.count(descriptors.CounterTimeouts, 1)
		}
		e.ready.add(ep)
	}
	if r.suspectAt != 0 && e.now >= r.suspectAt {
		if r.findLost(); r.resend != 0 {
			e.ready.add(ep)
		}
	}
	e.giveUp(ep, &r.liveness)
}
