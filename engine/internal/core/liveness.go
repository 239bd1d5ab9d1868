package core

import "time"

// DeadProbes is how often a peer that does not answer is asked before it is given up: with
// half of all frames lost each way, one connection in 10,000 is given up wrongly.
const DeadProbes = 32

// Liveness is what is known of a peer's life (SPEC.md 8.5).
type Liveness struct {
	Heard   time.Duration // when the peer was heard last
	Pending time.Duration // clock.present since which a probe is unanswered; zero: none is
}

// Hear notes that the peer lives.
func (l *Liveness) Hear(c *Clock) { l.Heard, l.Pending = c.Now, 0 }

// Unheard notes that a probe is unanswered.
func (l *Liveness) Unheard(c *Clock) {
	if l.Pending == 0 {
		l.Pending = c.Present()
	}
}

// dead reports whether the peer has left probes unanswered for longer than limit.
func (l *Liveness) dead(c *Clock, limit time.Duration) bool {
	return l.Pending != 0 && c.Present()-l.Pending > limit
}
