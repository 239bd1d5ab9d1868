package wire_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// progressivePort is a wire on which frames may come in parts.
type progressivePort interface {
	wire.Port
	engine.Progressive
}

// progressiveEnds opens each such wire.
func progressiveEnds(t *testing.T, each func(t *testing.T, a, b progressivePort)) {
	found := 0
	ends(t, func(t *testing.T, a, b wire.Port) {
		x, ok1 := a.(progressivePort)
		y, ok2 := b.(progressivePort)
		if ok1 && ok2 {
			found++
			each(t, x, y)
		}
	})
	should.Be(t, found < 4, false, "%d wires can, want memory, loopback, shm and the switch at least", found)
}

// toAll makes a frame go to all ports of a switch, and its sender nobody that could be learned.
func toAll(f []byte) []byte {
	copy(f, bytes.Repeat([]byte{0xff}, 2*len(datasheet.MAC{})))
	return f
}

func wantArrived(t *testing.T, p engine.Progressive, n int, aborted bool) {
	t.Helper()
	if got, gone := p.Arrived(); got != n || gone != aborted {
		t.Fatalf("%d bytes have arrived, aborted %v, want %d, %v", got, gone, n, aborted)
	}
}

func TestFrameInParts(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		wantArrived(t, b, 0, false) // there is none
		first, parts := frameOf(stationMAC(2), stationMAC(1), 5), frameOf(stationMAC(2), stationMAC(1), 1000)
		copy(a.Reserve(len(first)), first)
		a.Commit() // without Flush
		buf := a.Reserve(len(parts))
		copy(buf, parts[:100])
		a.Publish(100) // and all that was before it
		must.Same(t, await(t, b), first, "bytes came first")
		wantArrived(t, b, len(first), false)
		b.Release()
		f := await(t, b)
		must.Hold(t, len(f) == len(parts) && bytes.Equal(f[:100], parts[:100]), "a frame of %d bytes", len(f))
		wantArrived(t, b, 100, false)
		copy(buf[100:], parts[100:600])
		a.Publish(600)
		a.Publish(300) // what is there stays there
		wantArrived(t, b, 600, false)
		if g := b.Receive(); len(g) != len(f) || &g[0] != &f[0] {
			t.Error("Receive without Release gave another frame")
		}
		copy(buf[600:], parts[600:])
		a.Commit()
		wantArrived(t, b, len(parts), false)
		should.Same(t, f, parts, "the frame is damaged")
		b.Release()
		should.Be(t, b.Receive() != nil, false, "one frame too many")
		should.Same(t, carry(a, b, first), first, "the next frame is lost")
	})
}

func TestPublishOfNothing(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		a.Publish(10) // nothing is reserved
		a.Abort()
		f := frameOf(stationMAC(2), stationMAC(1), 100)
		a.Reserve(len(f))
		for _, n := range []int{0, -1, len(f) + 1, 1 << 40} {
			a.Publish(n)
		}
		should.Be(t, b.Receive() != nil, false, "a frame of which nothing is there")
		a.Abort()
		a.Commit()
		a.Publish(10)
		a.Flush()
		should.Be(t, b.Receive() != nil, false, "a frame that was given up before any of it was shown")
		copy(a.Reserve(len(f)), f)
		a.Publish(len(f))
		should.Same(t, await(t, b), f, "a frame that was published at its full length")
		a.Commit()
		b.Release()
		a.Commit()
		a.Flush()
		should.Be(t, b.Receive() != nil, false, "a second commit sends it again")
	})
}

func TestAbort(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		f := frameOf(stationMAC(2), stationMAC(1), 500)
		for name, abort := range map[string]func(){
			"Abort":           a.Abort,
			"another Reserve": func() { a.Reserve(100); a.Abort() },
		} {
			copy(a.Reserve(len(f)), f)
			a.Publish(200)
			must.Be(t, len(await(t, b)), len(f), "another frame")
			wantArrived(t, b, 200, false)
			abort()
			if n, aborted := b.Arrived(); n != 200 || !aborted {
				t.Fatalf("%s: %d bytes, aborted %v", name, n, aborted)
			}
			b.Release()
			must.Same(t, carry(a, b, f), f, "%s: the next frame is lost", name)
		}
	})
}

// TestReleaseBeforeTheEnd gives up a frame that is still on its way.
func TestReleaseBeforeTheEnd(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		for i := range 500 { // often enough to go around the ring
			f := toAll(bytes.Repeat([]byte{byte(i)}, 3000))
			buf := a.Reserve(len(f))
			must.Be(t, buf == nil, false, "no room")
			copy(buf, f[:64])
			a.Publish(64)
			await(t, b)
			b.Release()
			must.Be(t, b.Receive() != nil, false, "the frame comes again")
			copy(buf[64:], f[64:])
			a.Publish(2000)
			if i%2 == 0 {
				a.Commit()
			} else {
				a.Abort()
			}
			must.Be(t, b.Receive() != nil, false, "the rest of it comes")
			must.Same(t, carry(a, b, f[:100]), f[:100], "the next frame is lost")
		}
	})
}

// TestLinkDownEndsPart: a frame that has not arrived whole never will.
func TestLinkDownEndsPart(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		toAll(a.Reserve(1000))
		a.Publish(100)
		await(t, b)
		must.OK(t, a.Close())
		waittest.Until(t, "it is given up", func() bool { _, aborted := b.Arrived(); return aborted })
		b.Release()
		a.Publish(500)
		a.Commit()
		a.Abort()
	})
}

// TestPublishWakes: whoever sleeps is told about each part.
func TestPublishWakes(t *testing.T) {
	progressiveEnds(t, func(t *testing.T, a, b progressivePort) {
		woken := make(chan struct{}, 64)
		wait := func(what string) {
			select {
			case <-woken:
			case <-time.After(10 * time.Second):
				t.Fatalf("nobody was woken by %s", what)
			}
		}
		for i, step := range []func(){
			func() { toAll(a.Reserve(1000)); a.Publish(100) },
			func() { a.Publish(200) },
			a.Commit,
			func() { toAll(a.Reserve(1000)); a.Publish(100) },
			a.Abort,
		} {
			b.SetWake(func() { woken <- struct{}{} })
			step()
			wait(fmt.Sprint("step ", i))
		}
	})
}

// TestFaultWaitsForTheWhole: whoever uses a Fault does not know of parts.
func TestFaultWaitsForTheWhole(t *testing.T) {
	a, inner := memoryPair(t, wire.MemoryOptions{})
	b := must.Get(wire.NewFault(inner, wire.FaultOptions{}))(t)
	f := frameOf(stationMAC(2), stationMAC(1), 500)
	for _, aborted := range []bool{false, true, false} {
		copy(a.Reserve(len(f)), f)
		a.Publish(200)
		should.Be(t, b.Receive() != nil, false, "a frame that is not whole")
		if aborted {
			a.Abort()
		} else {
			a.Commit()
			should.Same(t, receive(b), f, "received bytes")
		}
		should.Be(t, b.Receive() != nil, false, "a frame too many")
	}
}
