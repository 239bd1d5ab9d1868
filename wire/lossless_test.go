package wire_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire"
)

// losslessEnds calls each with the two ends of every wire that loses nothing.
func losslessEnds(t *testing.T, each func(t *testing.T, a, b losslessPort)) {
	found := 0
	ends(t, func(t *testing.T, a, b wire.Port) {
		x, ok1 := a.(losslessPort)
		y, ok2 := b.(losslessPort)
		if ok1 && ok2 {
			found++
			each(t, x, y)
		}
	})
	if found < 3 {
		t.Errorf("%d wires lose nothing, want memory, loopback and shm at least", found)
	}
}

type losslessPort interface {
	wire.Port
	engine.Lossless
	engine.Progressive
}

// TestPlugKeepsFrames: what has been sent when a plug is pulled arrives once it is back,
// whether it had been seen, in part, or not at all.
func TestPlugKeepsFrames(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		whole, parts := frameOf(stationMAC(2), stationMAC(1), 100), frameOf(stationMAC(2), stationMAC(1), 500)
		for _, pull := range []wire.Port{a, b} {
			for _, seen := range []bool{false, true} {
				send(a, whole)
				copy(a.Reserve(len(parts)), parts)
				a.Publish(200)
				if seen {
					if !bytes.Equal(receive(b), whole) || len(await(t, b)) != len(parts) {
						t.Fatal("other frames")
					}
				}
				pull.SetLink(false)
				a.Publish(300)
				if !seen && b.Receive() != nil {
					t.Fatal("a frame arrives with a plug out")
				}
				a.Commit()
				a.Flush()
				if a.Reserve(100) != nil || b.Reserve(100) != nil {
					t.Fatal("room with a plug out")
				}
				pull.SetLink(true)
				if !seen && !bytes.Equal(receive(b), whole) {
					t.Fatal("a frame that had been sent is lost")
				}
				if f := await(t, b); !bytes.Equal(f, parts) {
					t.Fatal("a frame that had been begun is lost")
				}
				wantArrived(t, b, len(parts), false)
				b.Release()
			}
		}
	})
}

// TestTaken: both ends know the wire by one number, and the sender learns in the end what
// has been released, never before.
func TestTaken(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		if a.Wire() == 0 || a.Wire() != b.Wire() {
			t.Errorf("the wire is %#x and %#x", a.Wire(), b.Wire())
		}
		f := frameOf(stationMAC(2), stationMAC(1), 3000)
		for range 500 { // often enough to go around the ring
			if !send(a, f) {
				t.Fatal("no room")
			}
			mark := a.Mark()
			if len(await(t, b)) != len(f) || a != b && a.Receive() != nil {
				t.Fatal("another frame")
			}
			if int32(a.Taken()-mark) >= 0 {
				t.Fatal("a frame counts as taken that is held")
			}
			b.Release()
			for end := time.Now().Add(10 * time.Second); int32(a.Taken()-mark) < 0; {
				if a.Receive() != nil || b.Receive() != nil || time.Now().After(end) {
					t.Fatal("a frame that was released never counts as taken")
				}
			}
			if a.Taken() != mark {
				t.Fatalf("taken up to %d, sent up to %d", a.Taken(), mark)
			}
		}
	})
}

// TestNumbersDiffer: two wires are told apart.
func TestNumbersDiffer(t *testing.T) {
	seen := map[uint32]bool{}
	for range 20 {
		a, _, err := wire.NewMemory(wire.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen[a.Wire()] = true
	}
	if len(seen) < 19 || seen[0] {
		t.Errorf("20 wires have the numbers %v", seen)
	}
}
