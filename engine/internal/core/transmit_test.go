package core

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
	s.buf = Aligned(n)
	return s.buf
}
func (s *space) Commit() { s.committed++ }
func (s *space) Flush()  { s.flushed++ }

// talker is a kind of endpoints that have frames without payload to send.
type talker struct {
	Delivery
	t    *Transmitter
	left *int
}

func (k talker) Transmit(ep *Endpoint, budget int) bool {
	for ; budget > 0 && *k.left > 0; budget-- {
		if !k.t.SendAck(ep, datasheet.FrameAck) {
			return true
		}
		*k.left--
	}
	return *k.left > 0
}

func newTestTransmitter(room int) (*Transmitter, *space) {
	s := &space{room: room}
	c := &Core{link: link{Port: s, departs: Unflushed}}
	c.endpoints.clear(8)
	c.Tx.Core = c
	return &c.Tx, s
}

// TestTransmitTurns: endpoints that are ready take turns of transmitQuantum frames, of
// whatever kind they are, until they have nothing more to send.
func TestTransmitTurns(t *testing.T) {
	tx, wire := newTestTransmitter(1 << 20)
	left := [3]int{TransmitQuantum + 1, 2, 5}
	for i := range left {
		ep := &Endpoint{ID: uint32(i), Delivery: talker{t: tx, left: &left[i]}, State: datasheet.StateConnected}
		if i == 2 {
			ep.State = datasheet.StateError // its turn comes too late
		}
		tx.Ready.Add(ep)
	}
	for _, want := range []int{TransmitQuantum + 2, TransmitQuantum + 3} {
		if !tx.Transmit() || wire.committed != want {
			t.Fatalf("%d frames have been sent after a turn, not %d", wire.committed, want)
		}
	}
	if tx.Transmit() || len(tx.Ready.members) != 0 || left != [3]int{0, 0, 5} {
		t.Errorf("left to send: %v, ready %d", left, len(tx.Ready.members))
	}
	if tx.Flush(); wire.flushed != 1 {
		t.Errorf("the wire was flushed %d times", wire.flushed)
	}
	if tx.Own[datasheet.CounterFramesSent] != TransmitQuantum+3 {
		t.Errorf("%d frames were counted", tx.Own[datasheet.CounterFramesSent])
	}
}

// TestTransmitWaits: an endpoint stays ready while the wire is full, while the frame in
// progress is held, and while a program is exchanged.
func TestTransmitWaits(t *testing.T) {
	tx, wire := newTestTransmitter(1)
	left := 3
	tx.Ready.Add(&Endpoint{Delivery: talker{t: tx, left: &left}, State: datasheet.StateConnected})
	if !tx.Transmit() || left != 2 {
		t.Fatalf("%d frames are left", left)
	}
	wire.room = 10
	tx.Waiting = HookFilterTransmit.Set()
	if tx.Transmit() || left != 2 {
		t.Fatalf("a frame was sent that a program was to see")
	}
	tx.Waiting = 0
	if tx.Held = true; tx.Reserve(&datasheet.MAC{}, 0) != nil {
		t.Fatal("there is room while a frame is held")
	}
	if tx.Held = false; !tx.Transmit() || left != 0 {
		t.Errorf("%d frames are left", left)
	}
}
