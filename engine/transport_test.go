package engine

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestFindLost: a frame is lost once enough later ones have arrived; on a wire on which
// frames overtake each other, once it is late as well.
func TestFindLost(t *testing.T) {
	for _, reordered := range []bool{false, true} {
		c, now := newTestClock()
		e := newTransport(&core{clock: *c, timing: DefaultTiming()})
		r := &reliable{flow: flow{c: e.core}, nic: e, window: &window{recovery: recovery{reordered: reordered}}}
		for ; r.nxt < 5; r.nxt++ {
			r.transmissions++
			r.frames[r.nxt] = cut{sentAt: e.now, number: r.transmissions}
		}
		*now = 4 * time.Millisecond
		e.look()
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
		e.look()
		if r.findLost(); r.resend != 1 {
			t.Errorf("reordered %v: lost %b in the end, not the first", reordered, r.resend)
		}
	}
}

// TestTakeRefusesUnknownTypes: a frame of a type that a connection does not have says
// nothing about the connection.
func TestTakeRefusesUnknownTypes(t *testing.T) {
	c, _ := newTestClock()
	e := newTransport(&core{clock: *c})
	for _, frame := range []datasheet.FrameType{0, datasheet.FrameConnectRequest, 200} {
		r := &reliable{flow: flow{c: e.core, nxt: 1}, nic: e, window: &window{}}
		acked, not := &endpoint{conn: r, flow: &r.flow}, &endpoint{conn: &unreliable{}}
		h := &datasheet.Header{Type: frame, Ack: 1, Credit: 5}
		if (reliableVI{e}).take(acked, h, nil) != refused || (unreliableVI{e}).take(not, h, nil) != refused {
			t.Errorf("a frame of type %d was taken", frame)
		}
		if r.una != 0 || r.limit != 0 {
			t.Errorf("a frame of type %d acknowledged something", frame)
		}
	}
}
