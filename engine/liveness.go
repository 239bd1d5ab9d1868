package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// liveness is what is known of a peer's life (SPEC.md 8.5).
type liveness struct {
	heard  time.Duration // when the peer was heard last
	silent time.Duration // Engine.present since which a question is unanswered; zero: none is
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
func (e *Engine) hear(l *liveness) { l.heard, l.silent = e.now, 0 }

// keepAlive looks after a connection on which nothing is under way that the peer
// acknowledges.
func (e *Engine) keepAlive(ep *endpoint) {
	l := ep.liveness()
	if l == nil {
		return
	}
	if e.now-l.heard > e.timing.Probe {
		e.ask(ep)
	}
	e.giveUp(ep)
}

// ask sends a probe.
func (e *Engine) ask(ep *endpoint) {
	if l := ep.liveness(); l.silent == 0 {
		l.silent = e.present()
	}
	e.sendAck(ep, descriptors.FrameProbe)
}

// giveUp gives a peer up that has left questions unanswered for too long.
func (e *Engine) giveUp(ep *endpoint) {
	if l := ep.liveness(); l.silent != 0 && e.present()-l.silent > e.timing.Dead {
		e.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, true)
	}
}
