package engine

import (
	"time"
)

// deadProbes is how often a peer that does not answer is asked before it is given up: with
// half of all frames lost each way, one connection in 10,000 is given up wrongly.
const deadProbes = 32

// liveness is what is known of a peer's life (SPEC.md 8.5).
type liveness struct {
	heard   time.Duration // when the peer was heard last
	pending time.Duration // clock.present since which a probe is unanswered; zero: none is
}

// hear notes that the peer lives.
func (l *liveness) hear(c *clock) { l.heard, l.pending = c.now, 0 }

// unheard notes that a probe is unanswered.
func (l *liveness) unheard(c *clock) {
	if l.pending == 0 {
		l.pending = c.present()
	}
}

// dead reports whether the peer has left probes unanswered for longer than limit.
func (l *liveness) dead(c *clock, limit time.Duration) bool {
	return l.pending != 0 && c.present()-l.pending > limit
}
