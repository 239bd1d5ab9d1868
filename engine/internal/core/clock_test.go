package core

import (
	"testing"
	"time"
)

func NewTestClock() (*Clock, *time.Duration) {
	now := new(time.Duration)
	c := &Clock{Read: func() time.Duration { return *now }, gap: time.Second}
	c.clear()
	return c, now
}

// TestClockLooks: the closer steps follow each other, the fewer of them look.
func TestClockLooks(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart time.Duration
		looks int
	}{{"close", Closely / 2, 8}, {"far apart", Closely, 128}} {
		k, now := NewTestClock()
		looks := 0
		for range 128 {
			*now += c.apart
			if k.Step++; k.Step >= k.NextLook {
				k.Look()
				looks++
			}
			if late := *now - k.Now; late > ClockSteps*Closely {
				t.Fatalf("%s: the clock is %v late", c.name, late)
			}
		}
		if looks > c.looks+1 || looks < c.looks-3 {
			t.Errorf("%s: %d looks in 128 steps, not about %d", c.name, looks, c.looks)
		}
	}
}

// TestClockAway: time in which the engine did not run does not count against a peer.
func TestClockAway(t *testing.T) {
	c, now := NewTestClock()
	var l Liveness
	l.Hear(c)
	*now = time.Millisecond
	c.Look()
	l.Unheard(c)
	*now += time.Hour
	if c.Look(); c.Present() != time.Millisecond+time.Second || c.Now != *now {
		t.Errorf("present for %v of %v", c.Present(), c.Now)
	}
	if l.dead(c, time.Second) {
		t.Error("a peer is dead that was not listened to")
	}
	for range 3 {
		*now += time.Second
		c.Look()
	}
	if !l.dead(c, 3*time.Second) || l.dead(c, 5*time.Second) {
		t.Error("a peer is dead too early or too late")
	}
	if l.Hear(c); l.dead(c, 0) || l.Heard != *now {
		t.Error("a peer is dead that has been heard")
	}
	if !c.Due(&c.NextTick, TickEvery) || c.Due(&c.NextTick, TickEvery) || !c.Due(&c.NextIdle, IdleEvery) || c.Due(&c.NextIdle, IdleEvery) {
		t.Error("timers are not due once")
	}
}
