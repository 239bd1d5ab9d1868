package engine

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// space is a port with room for some frames, which nobody receives.
type space struct {
	Port
	room, committed, flushed int
	buf                      []byte
}

func (s *space) Reserve(n int) []byte {
	if s.room == s.committed {
		return nil
	}
	s.buf = aligned(n)
	return s.buf
}
func (s *space) Commit() { s.committed++ }
func (s *space) Flush()  { s.flushed++ }

// talker is a kind of endpoints that have frames without payload to send.
type talker struct {
	delivery
	t    *transmitter
	left *int
}

func (k talker) transmit(ep *endpoint, budget int) bool {
	for ; budget > 0 && *k.left > 0; budget-- {
		if !k.t.sendAck(ep, datasheet.FrameAck) {
			return true
		}
		*k.left--
	}
	return *k.left > 0
}

func newTestTransmitter(room int) (*transmitter, *space) {
	s := &space{room: room}
	c := &core{link: link{port: s, departs: unflushed}}
	c.endpoints.clear(8)
	return &transmitter{core: c}, s
}

// TestTransmitTurns: endpoints that are ready take turns of transmitQuantum frames, of
// whatever kind they are, until they have nothing more to send.
func TestTransmitTurns(t *testing.T) {
	tx, wire := newTestTransmitter(1 << 20)
	left := [3]int{transmitQuantum + 1, 2, 5}
	for i := range left {
		ep := &endpoint{id: uint32(i), delivery: talker{t: tx, left: &left[i]}, state: datasheet.StateConnected}
		if i == 2 {
			ep.state = datasheet.StateError // its turn comes too late
		}
		tx.ready.add(ep)
	}
	for _, want := range []int{transmitQuantum + 2, transmitQuantum + 3} {
		if !tx.transmit() || wire.committed != want {
			t.Fatalf("%d frames have been sent after a turn, not %d", wire.committed, want)
		}
	}
	if tx.transmit() || len(tx.ready.members) != 0 || left != [3]int{0, 0, 5} {
		t.Errorf("left to send: %v, ready %d", left, len(tx.ready.members))
	}
	if tx.flush(); wire.flushed != 1 {
		t.Errorf("the wire was flushed %d times", wire.flushed)
	}
	if tx.own[datasheet.CounterFramesSent] != transmitQuantum+3 {
		t.Errorf("%d frames were counted", tx.own[datasheet.CounterFramesSent])
	}
}

// TestTransmitWaits: an endpoint stays ready while the wire is full, while the frame in
// progress is held, and while a program is exchanged.
func TestTransmitWaits(t *testing.T) {
	tx, wire := newTestTransmitter(1)
	left := 3
	tx.ready.add(&endpoint{delivery: talker{t: tx, left: &left}, state: datasheet.StateConnected})
	if !tx.transmit() || left != 2 {
		t.Fatalf("%d frames are left", left)
	}
	wire.room = 10
	tx.waiting = HookFilterTransmit.Set()
	if tx.transmit() || left != 2 {
		t.Fatalf("a frame was sent that a program was to see")
	}
	tx.waiting = 0
	if tx.held = true; tx.reserve(&datasheet.MAC{}, 0) != nil {
		t.Fatal("there is room while a frame is held")
	}
	if tx.held = false; !tx.transmit() || left != 0 {
		t.Errorf("%d frames are left", left)
	}
}
