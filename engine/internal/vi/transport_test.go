package vi

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func newTestClock() (*core.Clock, *time.Duration) {
	now := new(time.Duration)
	c := &core.Clock{Read: func() time.Duration { return *now }}
	return c, now
}

// TestFindLost: a frame is lost once enough later ones have arrived; on a wire on which
// frames overtake each other, once it is late as well.
func TestFindLost(t *testing.T) {
	for _, reordered := range []bool{false, true} {
		c, now := newTestClock()
		e := New(&core.Core{Clock: *c, Timing: core.DefaultTiming()})
		r := &reliable{Flow: core.Flow{C: e.Core}, nic: e, window: &window{reordered: reordered}}
		for ; r.Nxt < 5; r.Nxt++ {
			r.transmissions++
			r.frames[r.Nxt] = cut{sentAt: e.Now, number: r.transmissions}
		}
		*now = 4 * time.Millisecond
		e.Look()
		for have := uint32(0b1); have <= 0b111; have = have<<1 | 1 { // frames 1 to 3
			if r.resend != 0 {
				t.Fatalf("reordered %v: lost %b before %b", reordered, r.resend, have)
			}
			r.learn(&datasheet.Header{Type: datasheet.FrameAck, Extent: have})
		}
		if !reordered && r.resend != 1 || reordered && (r.resend != 0 || r.suspectAt != *now+r.minRTT/4) {
			t.Errorf("reordered %v: lost %b, next at %v", reordered, r.resend, r.suspectAt)
		}
		*now += r.minRTT
		e.Look()
		if r.findLost(); r.resend != 1 {
			t.Errorf("reordered %v: lost %b in the end, not the first", reordered, r.resend)
		}
	}
}

// TestTakeRefusesUnknownTypes: a frame of a type that a connection does not have says
// nothing about the connection.
func TestTakeRefusesUnknownTypes(t *testing.T) {
	c, _ := newTestClock()
	e := New(&core.Core{Clock: *c})
	for _, frame := range []datasheet.FrameType{0, datasheet.FrameConnectRequest, 200} {
		r := &reliable{Flow: core.Flow{C: e.Core, Nxt: 1}, nic: e, window: &window{}}
		acked, not := &core.Endpoint{Conn: r, Flow: &r.Flow}, &core.Endpoint{Conn: &unreliable{}}
		h := &datasheet.Header{Type: frame, Ack: 1, Credit: 5}
		if (Reliable{e}).Take(acked, h, nil) != core.Refused || (Unreliable{e}).Take(not, h, nil) != core.Refused {
			t.Errorf("a frame of type %d was taken", frame)
		}
		if r.Una != 0 || r.limit != 0 {
			t.Errorf("a frame of type %d acknowledged something", frame)
		}
	}
}
