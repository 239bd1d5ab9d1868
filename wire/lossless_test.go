package wire_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
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
	should.Be(t, found < 3, false, "%d wires lose nothing, want memory, loopback and shm at least", found)
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
					must.Be(t, !bytes.Equal(receive(b), whole) || len(await(t, b)) != len(parts), false, "other frames")
				}
				pull.SetLink(false)
				a.Publish(300)
				must.Be(t, !seen && b.Receive() != nil, false, "a frame arrives with a plug out")
				a.Commit()
				a.Flush()
				must.Be(t, a.Reserve(100) != nil || b.Reserve(100) != nil, false, "room with a plug out")
				pull.SetLink(true)
				must.Be(t, !seen && !bytes.Equal(receive(b), whole), false, "a frame that had been sent is lost")
				must.Same(t, await(t, b), parts, "a frame that had been begun is lost")
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
		should.Hold(t, a.Wire() != 0 && a.Wire() == b.Wire(), "the wire is %#x and %#x", a.Wire(), b.Wire())
		f := frameOf(stationMAC(2), stationMAC(1), 3000)
		for range 500 { // often enough to go around the ring
			must.Be(t, send(a, f), true, "no room")
			mark := a.Mark()
			must.Be(t, len(await(t, b)) != len(f) || a != b && a.Receive() != nil, false, "another frame")
			must.Be(t, int32(a.Taken()-mark) >= 0, false, "a frame counts as taken that is held")
			b.Release()
			for end := time.Now().Add(10 * time.Second); int32(a.Taken()-mark) < 0; {
				must.Be(t, a.Receive() != nil || b.Receive() != nil || time.Now().After(end), false, "a frame that was released never counts as taken")
			}
			must.Be(t, a.Taken(), mark, "taken up to, sent up")
		}
	})
}

// TestTakenInConversation: the sender also learns it soon while frames come all the time that say
// nothing of its own.
func TestTakenInConversation(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		if a == b {
			return // it receives what it has sent itself
		}
		f := frameOf(stationMAC(2), stationMAC(1), 100)
		for i := range 20 {
			send(a, f)
			mark := a.Mark()
			await(t, b)
			b.Release()
			b.Free()
			most := 200
			for calls := 0; int32(a.Taken()-mark) < 0; calls++ {
				if i >= 10 { // it waits for that
					a.AwaitTaken()
					most = 4
				}
				must.Be(t, calls == most, false, "%d looks did not tell that a frame was released", most)
				if calls%4 == 0 {
					send(b, f)
				}
				if a.Receive() != nil {
					a.Release()
				}
			}
			for a.Receive() != nil {
				a.Release()
			}
		}
	})
}

// TestTakenBehindFrames: what the peer has released is told once the frames have been
// received that it sent before: not while a plug is out, nor while there are more, behind
// one that was given up or not.
func TestTakenBehindFrames(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		if a == b {
			return // it receives what it has sent itself
		}
		f, g := frameOf(stationMAC(2), stationMAC(1), 3000), frameOf(stationMAC(1), stationMAC(2), 100)
		for name, hide := range map[string]func() (show func()){
			"a plug":   func() func() { b.SetLink(false); return func() { b.SetLink(true) } },
			"our plug": func() func() { a.SetLink(false); return func() { a.SetLink(true) } },
			"an aborted frame": func() func() {
				copy(b.Reserve(200), g)
				b.Publish(50)
				b.Abort()
				return func() {}
			},
		} {
			for range 40 {
				send(a, f)
				mark := a.Mark()
				must.Be(t, len(await(t, b)), len(f), "another frame")
				var show func()
				if name == "an aborted frame" {
					show = hide()
				}
				send(b, g) // what the peer has to say of the frame
				b.Release()
				b.Receive() // it says that it has
				if show == nil {
					show = hide()
				}
				for range 50 {
					if got := a.Receive(); got != nil {
						if n, gone := a.Arrived(); n == len(g) && !gone {
							break
						}
						a.Release()
					}
					must.Be(t, int32(a.Taken()-mark) >= 0, false, "%s: the frame counts as taken, and what the peer said has not been received", name)
				}
				show()
				must.Same(t, await(t, a), g, "%s: another frame", name)
				a.Release()
				for end := time.Now().Add(10 * time.Second); a.Taken() != mark; {
					if a.Receive() != nil || b.Receive() != nil || time.Now().After(end) {
						t.Fatalf("%s: a frame that was released never counts as taken", name)
					}
				}
			}
		}
	})
}

// TestBreak: a wire that is broken has another number at both ends, or none.
func TestBreak(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		old := a.Wire()
		must.Be(t, old, b.Wire(), "the ends do not agree")
		b.Break()
		waittest.Until(t, "the wire has another number", func() bool { return a.Wire() != old && b.Wire() != old })
		waittest.Until(t, "both ends agree on it", func() bool { a.Receive(); return a.Wire() == b.Wire() && a.Wire() != 0 })
	})
}

// TestClosedWireHasNoNumber: what is sent to an end that is closed does not arrive.
func TestClosedWireHasNoNumber(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		_ = b.Close()
		waittest.Until(t, "the wire has no number", func() bool { return a.Wire() == 0 && b.Wire() == 0 })
	})
}

// TestFree: the sender learns of a frame that has been released, although the receiver does not look again.
func TestFree(t *testing.T) {
	losslessEnds(t, func(t *testing.T, a, b losslessPort) {
		for range 3 {
			send(a, frameOf(stationMAC(2), stationMAC(1), 100))
			mark := a.Mark()
			await(t, b)
			b.Release()
			b.Free()
			waittest.Until(t, "the sender knows", func() bool { a.Receive(); return int32(a.Taken()-mark) >= 0 })
		}
	})
}
