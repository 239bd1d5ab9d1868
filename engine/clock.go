package engine

import "time"

// clock is the time as the engine knows it. To read it costs as much as a step without
// work: while steps follow each other closely, the time since the last look is known
// well enough, and the next look can wait for more of them.
type clock struct {
	read func() time.Duration
	gap  time.Duration // between two looks: longer, and nobody ran the engine

	now       time.Duration // as of the last look
	away      time.Duration // of it, how long nobody ran the engine
	step      uint64        // number of the step
	looked    uint64        // step of the last look
	nextLook  uint64        // step of the next one, lookEvery later
	lookEvery uint64
	nextTick  time.Duration
	nextIdle  time.Duration
}

const (
	clockSteps = 32                    // steps between two looks at the clock at most
	closely    = 2 * time.Microsecond  // from one step to the next: more, and each looks at the clock
	tickEvery  = time.Millisecond      // between two looks at timers that are running
	idleEvery  = 50 * time.Millisecond // between two looks at idle connections
	// deadLooks is how often the engine must at least have looked for an answer
	// before it takes a peer for dead.
	deadLooks = 8
)

func (c *clock) clear() {
	c.now, c.away = c.read(), 0
	c.looked, c.nextLook, c.lookEvery = c.step, c.step+1, 1
	c.nextTick = c.now + tickEvery
}

// look reads the clock. An engine that nobody ran for long, because its host
// was suspended or did not poll, cannot know that its peers have sent nothing: it
// may be on the wire.
func (c *clock) look() {
	now := c.read()
	passed := now - c.now
	if passed > c.gap {
		c.away += passed - c.gap
	}
	if c.lookEvery *= 2; passed >= closely*time.Duration(c.step-c.looked) {
		c.lookEvery = 1
	}
	c.lookEvery = min(c.lookEvery, clockSteps)
	c.looked, c.nextLook = c.step, c.step+c.lookEvery
	c.now = now
}

// present is the time for which the engine has been running.
func (c *clock) present() time.Duration { return c.now - c.away }

// due reports whether it is time to look at timers, once for each time: next is when,
// and every is from one look to the next.
func (c *clock) due(next *time.Duration, every time.Duration) bool {
	if c.now < *next {
		return false
	}
	*next = c.now + every
	return true
}
