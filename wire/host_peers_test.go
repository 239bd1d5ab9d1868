package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire"
)

// sendTo sends a frame as an engine does.
func sendTo(p wire.Port, frame []byte) bool {
	p.(engine.Peers).SetDestination([6]byte(frame))
	return send(p, frame)
}

func wayTo(t *testing.T, p wire.Port, station byte) engine.Lossless {
	t.Helper()
	w, soon := p.(engine.Peers).Peer(stationMAC(station))
	must.Hold(t, w != nil && !soon, "no way to station %d: %v, %v", station, w, soon)
	return w
}

// TestHostWays: two ports know the memory between them by one number, and what has been taken there. No
// other port is reached without loss.
func TestHostWays(t *testing.T) {
	p := hosts(t, 3)
	seen := map[uint32]bool{}
	for i := range p {
		for j := range i {
			a, b := wayTo(t, p[i], byte(j)), wayTo(t, p[j], byte(i))
			should.Hold(t, a.Wire() != 0 && a.Wire() == b.Wire() && !seen[a.Wire()], "%d and %d: the wire is %#x and %#x", i, j, a.Wire(), b.Wire())
			seen[a.Wire()] = true
		}
	}
	if w, soon := p[0].(engine.Peers).Peer(stationMAC(9)); w != nil || soon {
		t.Error("there is a way to a station that is not there")
	}
	way := wayTo(t, p[0], 1)
	for range 300 { // several times around the ring
		f := frameOf(stationMAC(1), stationMAC(0), 3000)
		must.Be(t, sendTo(p[0], f), true, "no room")
		mark := way.Mark()
		for got := p[1].Receive(); !bytes.Equal(got, f); got = p[1].Receive() {
			must.Be(t, got != nil, false, "another frame")
		}
		if p[0].Receive(); int32(way.Taken()-mark) >= 0 {
			t.Fatal("a frame counts as taken that is held")
		}
		p[1].Release()
		for end := time.Now().Add(10 * time.Second); way.Taken() != mark; {
			if p[0].Receive() != nil || p[1].Receive() != nil || time.Now().After(end) {
				t.Fatal("a frame that was released never counts as taken")
			}
		}
	}
}

// TestHostWaits: there is no room on the way to a port that takes nothing, and nothing is lost; other ports
// are reached.
func TestHostWaits(t *testing.T) {
	p := hosts(t, 3)
	sent := 0
	for sendTo(p[0], frameOf(stationMAC(1), stationMAC(0), 4000+sent)) {
		if sent++; sent > 1000 {
			t.Fatal("there is always room")
		}
	}
	f := frameOf(stationMAC(2), stationMAC(0), 10)
	must.Be(t, sendTo(p[0], f) && bytes.Equal(receive(p[2]), f), true, "a port that takes nothing stops frames to another one")
	for i := range sent {
		must.Same(t, receive(p[1]), frameOf(stationMAC(1), stationMAC(0), 4000+i), "frame %d of %d did not come", i, sent)
	}
	should.Be(t, hostStats(p[0]).Dropped, 0, "dropped")
}

// TestHostPlug: frames wait while a plug is out.
func TestHostPlug(t *testing.T) {
	p := hosts(t, 2)
	f := frameOf(stationMAC(1), stationMAC(0), 100)
	for _, pull := range p {
		must.Be(t, sendTo(p[0], f), true, "no room")
		pull.SetLink(false)
		must.Be(t, pull.LinkUp() || pull.Reserve(100) != nil || pull.Receive() != nil, false, "frames pass with the plug out")
		pull.SetLink(true)
		must.Same(t, receive(p[1]), f, "a frame is lost")
	}
}

// TestHostIdle: frames of ports that were idle for long are found, whatever is written where they mark themselves.
func TestHostIdle(t *testing.T) {
	const n = 9
	p := hosts(t, n)
	marks := pagesOfMarks(t)
	must.Be(t, len(marks) == 0, false, "no page for marks is mapped")
	for _, scribble := range []func(round int) uint64{func(int) uint64 { return 0 }, func(int) uint64 { return ^uint64(0) },
		func(round int) uint64 { return uint64(round) * 0x9e3779b97f4a7c15 }} {
		for round := range 60 {
			for range 2000 {
				must.Be(t, p[0].Receive() != nil, false, "a frame out of nowhere")
			}
			from := 1 + round%(n-1)
			f := frameOf(stationMAC(0), stationMAC(byte(from)), round)
			must.Be(t, sendTo(p[from], f), true, "no room")
			var w [64]byte
			for i := range 8 {
				binary.LittleEndian.PutUint64(w[8*i:], scribble(round+i))
			}
			for _, at := range marks {
				writeMemory(t, at, w[:])
			}
			found := false
			for range 4 * 4 * n { // looks at ports that are idle have a bound
				if got := p[0].Receive(); got != nil {
					if found = bytes.Equal(got, f); !found {
						t.Fatal("another frame")
					}
					p[0].Release()
					break
				}
			}
			must.Be(t, found, true, "round %d: a frame of port %d is not found", round, from)
		}
	}
}

// TestHostMarks: frames of ports that were idle for long are found by the next look.
func TestHostMarks(t *testing.T) {
	const n = 9
	p := hosts(t, n)
	end := time.Now().Add(10 * time.Second)
	for round, good := 0, 0; good < 2*n; round++ { // at first not all know where to mark themselves
		for range 1000 {
			must.Be(t, p[0].Receive() != nil, false, "a frame out of nowhere")
		}
		from := 1 + round%(n-1)
		f := frameOf(stationMAC(0), stationMAC(byte(from)), round)
		must.Be(t, sendTo(p[from], f), true, "no room")
		got := p[0].Receive()
		if good++; got == nil {
			good = 0
			got = await(t, p[0])
		}
		must.Same(t, got, f, "another frame")
		if p[0].Release(); time.Now().After(end) {
			t.Fatalf("after %d rounds not every frame is found at once", round)
		}
	}
}

// pagesOfMarks are the addresses of the pages in which ports mark themselves.
func pagesOfMarks(t *testing.T) (at []int64) {
	t.Helper()
	maps := must.Get(os.ReadFile("/proc/self/maps"))(t)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x rw-s", &from, &to); err == nil && strings.Contains(line, "trapeze-shm") && to-from == 4096 {
			at = append(at, from)
		}
	}
	return at
}

// writeMemory does what another process can do that has the page.
func writeMemory(t *testing.T, at int64, b []byte) {
	t.Helper()
	f := must.Get(os.OpenFile("/proc/self/mem", os.O_RDWR, 0))(t)
	defer f.Close()
	must.Get(f.WriteAt(b, at))(t)
}
