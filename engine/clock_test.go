package engine

import (
	"testing"
	"time"
)

func newTestClock() (*clock, *time.Duration) {
	now := new(time.Duration)
	c := &clock{read: func() time.Duration { return *now }, gap: time.Second}
	c.clear()
	return c, now
}

// TestClockLooks: the closer steps follow each other, the fewer of them look.
func TestClockLooks(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart time.Duration
		looks int
	}{{"close", closely / 2, 8}, {"far apart", closely, 128}} {
		k, now := newTestClock()
		looks := 0
		for range 128 {
			*now += c.apart
			if k.step++; k.step >= k.nextLook {
				k.look()
				looks++
			}
			if late := *now - k.now; late > clockSteps*closely {
				t.Fatalf("%s: the clock is %v late", c.name, late)
			}
		}
		if looks > c.looks+1 || looks < c.looks-3 {
			t.Errorf("%s: %d looks in 128 steps, not about %d", c.name, looks, c.looks)
		}
	}
}

// TestClockAway: time in which nobody ran the engine does not count against a peer.
func TestClockAway(t *testing.T) {
	c, now := newTestClock()
	var l liveness
	l.hear(c)
	*now = time.Millisecond
	c.look()
	l.unheard(c)
	*now += time.Hour
	if c.look(); c.present() != time.Millisecond+time.Second || c.now != *now {
		t.Errorf("present for %v of %v", c.present(), c.now)
	}
	if l.dead(c, time.Second) {
		t.Error("a peer is dead that nobody listened to")
	}
	for range 3 {
		*now += time.Second
		c.look()
	}
	if !l.dead(c, 3*time.Second) || l.dead(c, 5*time.Second) {
		t.Error("a peer is dead too early or too late")
	}
	if l.hear(c); l.dead(c, 0) || l.heard != *now {
		t.Error("a peer is dead that has been heard")
	}
	if !c.due(&c.nextTick, tickEvery) || c.due(&c.nextTick, tickEvery) || !c.due(&c.nextIdle, idleEvery) || c.due(&c.nextIdle, idleEvery) {
		t.Error("timers are not due once")
	}
}
