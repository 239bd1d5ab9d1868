package core

import "time"

// Clock is the time as the engine knows it. To read it costs as much as a step without
// work: while steps follow each other closely, the time since the last look is known
// well enough, and the next look can wait for more of them.
type Clock struct {
	Read func() time.Duration
	gap  time.Duration // between two looks: longer, and the engine did not run

	Now       time.Duration // as of the last look
	away      time.Duration // of it, how long the engine did not run
	Step      uint64        // number of the step
	looked    uint64        // step of the last look
	NextLook  uint64        // step of the next one, lookEvery later
	lookEvery uint64
	NextTick  time.Duration
	NextIdle  time.Duration
}

const (
	ClockSteps = 32                    // steps between two looks at the clock at most
	Closely    = 2 * time.Microsecond  // from one step to the next: more, and each looks at the clock
	TickEvery  = time.Millisecond      // between two looks at timers that are running
	IdleEvery  = 50 * time.Millisecond // between two looks at idle connections
	// DeadLooks is the least number of looks of the engine for an answer
	// before it takes a peer for dead.
	DeadLooks = 8
)

func (c *Clock) clear() {
	c.Now, c.away = c.Read(), 0
	c.looked, c.NextLook, c.lookEvery = c.Step, c.Step+1, 1
	c.NextTick = c.Now + TickEvery
}

// Look reads the clock. An engine that did not run for long, because its host
// was suspended or did not poll, cannot know that its peers have sent nothing: it
// may be on the wire.
func (c *Clock) Look() {
	now := c.Read()
	passed := now - c.Now
	if passed > c.gap {
		c.away += passed - c.gap
	}
	if c.lookEvery *= 2; passed >= Closely*time.Duration(c.Step-c.looked) {
		c.lookEvery = 1
	}
	c.lookEvery = min(c.lookEvery, ClockSteps)
	c.looked, c.NextLook = c.Step, c.Step+c.lookEvery
	c.Now = now
}

// Present is the time for which the engine has been running.
func (c *Clock) Present() time.Duration { return c.Now - c.away }

// Due reports whether it is time to look at timers, once for each time: next is when,
// and every is from one look to the next.
func (c *Clock) Due(next *time.Duration, every time.Duration) bool {
	if c.Now < *next {
		return false
	}
	*next = c.Now + every
	return true
}

// DeadProbes is the number of unanswered probes before a peer is given up: with
// half of all frames lost each way, one connection in 10,000 is given up wrongly.
const DeadProbes = 32

// Liveness holds the signs of a peer's life (SPEC.md 8.5).
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
