package core

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestSetupPauses: a request is repeated after pauses of a quarter of the time that has
// passed, from setupEvery to setupRarely, with the time that is left in it.
func TestSetupPauses(t *testing.T) {
	clock, now := NewTestClock()
	tx, wire := newTestTransmitter(1 << 20)
	tx.Clock, tx.Timing = *clock, DefaultTiming()
	c := &setups{Core: tx.Core, random: bytes.NewReader([]byte{0, 0, 0, 0, 1, 2, 3, 4})}
	if k, ok := c.key(); k != 0x04030201 || !ok { // zero is none
		t.Errorf("key %#x, %v", k, ok)
	}
	if _, ok := c.key(); ok {
		t.Error("there is a key without a random number")
	}
	ep := &Endpoint{ID: 1}
	const limit = 10 * time.Second
	if s := (&setup{to: datasheet.Broadcast}); c.start(ep, s, Remote{}, uint32(limit/time.Millisecond)) || ep.Setup != nil {
		t.Error("a set-up begins without a key")
	}
	c.random = bytes.NewReader([]byte{1, 2, 3, 4})
	if !c.start(ep, &setup{to: datasheet.Broadcast}, Remote{}, uint32(limit/time.Millisecond)) {
		t.Fatal("a set-up does not begin")
	}
	for last := c.Now; *now < limit-2*setupRarely; {
		if *now += time.Millisecond; *now >= ep.Setup.repeatAt {
			if pause, want := *now-last, min(max(last/4, setupEvery), setupRarely); pause < want || pause > want+time.Millisecond {
				t.Fatalf("a pause of %v at %v, not %v", pause, last, want)
			}
			last = *now
		}
		before := wire.committed
		c.Look()
		if c.Tick(); wire.committed == before {
			continue
		}
		body := datasheet.ConnectBodyAt(wire.buf[datasheet.HeaderSize:])
		if left := time.Duration(body.TimeoutMS) * time.Millisecond; left > limit-*now || left < limit-*now-time.Millisecond {
			t.Fatalf("%v are left, and the request says %v", limit-*now, left)
		}
	}
	if wire.committed < 10 || len(c.UnderWay) != 1 {
		t.Errorf("the request was sent %d times", wire.committed)
	}
}
