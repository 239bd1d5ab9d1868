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

// TestFlight: messages that the peer's frames have acknowledged make room for others, and those that are not
// known to have arrived stay, in order.
func TestFlight(t *testing.T) {
	const messages = 10 * firstFlight
	ep := &core.Endpoint{Era: 7}
	for _, under := range []uint32{1, firstFlight / 2, 3 * firstFlight, messages} { // not acknowledged
		r := &reliable{Flow: core.Flow{Ep: ep}}
		var f flight
		for psn := range uint32(messages) {
			r.Una = max(psn, under) - under
			f.add(flying{r, 7, psn + 1, 100 + psn + 1})
		}
		if most := max(firstFlight, 4*int(under)); len(f.messages) > most {
			t.Errorf("%d under way: room for %d, more than %d", under, len(f.messages), most)
		}
		if n := f.next - f.first; n < under || n > uint32(len(f.messages)) {
			t.Errorf("%d under way: %d are kept", under, n)
		}
		for i := f.first; i != f.next; i++ {
			if m := f.at(i); m.psn != messages-(f.next-i)+1 || m.mark != 100+m.psn {
				t.Fatalf("%d under way: PSN %d at %d before the end", under, m.psn, f.next-i)
			}
		}
	}
	r := &reliable{Flow: core.Flow{Ep: ep}}
	var f flight
	for psn := range uint32(messages) {
		f.add(flying{r, 6, psn, psn}) // of a connection that is over
	}
	if len(f.messages) != firstFlight {
		t.Errorf("room for %d messages of a connection that is over", len(f.messages))
	}
}
