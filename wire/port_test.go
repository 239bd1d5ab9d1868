package wire_test

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// The calls of most tests.
var send, receive, carry, await = wiretest.Send, wiretest.Receive, wiretest.Carry, wiretest.Await

func stationMAC(n byte) datasheet.MAC { return datasheet.MAC{2, 0, 0, 0, 0, n} }

// frameOf makes a frame of our type with a payload of n bytes.
func frameOf(to, from datasheet.MAC, n int) []byte {
	f := make([]byte, datasheet.HeaderSize+n)
	copy(f, to[:])
	copy(f[6:], from[:])
	copy(f[12:], datasheet.EtherType[:])
	for i := datasheet.HeaderSize; i < len(f); i++ {
		f[i] = byte(i * 7)
	}
	return f
}

// sharedPair opens a wire between processes, both ends of it in this one.
func sharedPair(t *testing.T) (wire.Port, wire.Port) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wire")
	a := must.Get(wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, Role: wire.SHMListen}))(t)
	return a, must.Get(wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, Role: wire.SHMConnect}))(t)
}

// memifPair opens two ends of memif, of which the first has a role.
func memifPair(role wire.MemifRole, a, b wire.MemifOptions) func(t *testing.T) (wire.Port, wire.Port) {
	return func(t *testing.T) (wire.Port, wire.Port) {
		t.Helper()
		a.Socket = filepath.Join(t.TempDir(), "memif")
		b.Socket, a.Role, b.Role = a.Socket, role, wire.MemifServer+wire.MemifClient-role
		return must.Get(wire.NewMemif(a))(t), must.Get(wire.NewMemif(b))(t)
	}
}

// memoryPair makes the ends of a wire in memory.
func memoryPair(t testing.TB, o wire.MemoryOptions) (a, b *wire.Memory) {
	t.Helper()
	return must.Two(wire.NewMemory(o))(t)
}

// nicPair opens two NICs on a cable.
func nicPair(t *testing.T) (wire.Port, wire.Port) {
	t.Helper()
	o := wire.NICOptions{Address: cable.Scheme + ":" + t.Name()}
	return must.Get(wire.NewNIC(t.Context(), o))(t), must.Get(wire.NewNIC(t.Context(), o))(t)
}

// ends opens one wire of each kind for a test that must hold for all.
func ends(t *testing.T, each func(t *testing.T, a, b wire.Port)) {
	memory := func(t *testing.T) (wire.Port, wire.Port) {
		a, b := memoryPair(t, wire.MemoryOptions{Ring: 1}) // frames soon go around it
		return a, b
	}
	chains := wire.MemifOptions{Buffer: 128, Ring: 64, MTU: 4096}
	kinds := map[string]func(t *testing.T) (wire.Port, wire.Port){
		"memory": memory,
		"loopback": func(t *testing.T) (wire.Port, wire.Port) {
			l := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
			return l, l
		},
		"switch": func(t *testing.T) (wire.Port, wire.Port) {
			p := must.Get(wire.NewSwitch(2, wire.SwitchOptions{}))(t)
			return p[0], p[1]
		},
		"UDP": func(t *testing.T) (wire.Port, wire.Port) { return udpPair(t, 0) },
		"fault": func(t *testing.T) (wire.Port, wire.Port) {
			a, b := memory(t)
			return must.Get(wire.NewFault(a, wire.FaultOptions{}))(t), b
		},
		"shm":                           sharedPair,
		"memif":                         memifPair(wire.MemifServer, wire.MemifOptions{}, wire.MemifOptions{}),
		"memif from a client":           memifPair(wire.MemifClient, wire.MemifOptions{}, wire.MemifOptions{}),
		"memif of several rings":        memifPair(wire.MemifServer, wire.MemifOptions{}, wire.MemifOptions{Queues: 3}),
		"memif in chains":               memifPair(wire.MemifServer, wire.MemifOptions{MTU: 4096}, chains),
		"memif in chains from a client": memifPair(wire.MemifClient, chains, wire.MemifOptions{MTU: 4096}),
		"memif that polls":              memifPair(wire.MemifServer, wire.MemifOptions{Polling: true}, wire.MemifOptions{Polling: true}),
		"NIC":                           nicPair,
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			before := leaktest.Files(t)
			a, b := open(t)
			waittest.Until(t, "link up", func() bool { return a.LinkUp() && b.LinkUp() })
			each(t, a, b)
			for range 2 { // closing twice is fine
				should.OK(t, errors.Join(a.Close(), b.Close()))
			}
			for _, end := range []wire.Port{a, b} { // what was reserved or held is given back
				end.Reserve(0)
				end.Receive()
			}
			if after := leaktest.Files(t); after != before {
				t.Errorf("%d file descriptors before, %d after", before, after)
			}
		})
	}
}

func TestFramesArrive(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		should.Be(t, a.Receive() != nil, false, "a frame that nobody sent")
		a.Release() // nothing was received: no effect
		for _, n := range []int{0, 1, 63, 64, 65, 1000, a.MTU() - datasheet.HeaderSize} {
			f := frameOf(stationMAC(2), stationMAC(1), n)
			must.Be(t, send(a, f), true, "no room for %d bytes", n)
			got := receive(b)
			must.Be(t, bytes.Equal(got, f), true, "payload of %d bytes: sent %d bytes, received %d", n, len(f), len(got))
		}
	})
}

func TestFrameStaysUntilRelease(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		one, two := frameOf(stationMAC(2), stationMAC(1), 10), frameOf(stationMAC(2), stationMAC(1), 20)
		send(a, one)
		send(a, two)
		await(t, b)
		for range 2 {
			should.Be(t, bytes.Equal(b.Receive(), one), true, "Receive without Release gave another frame")
		}
		b.Release()
		b.Release() // the second has no effect
		should.Be(t, bytes.Equal(receive(b), two), true, "the second frame is lost")
	})
}

func TestSecondReserveReplaces(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		copy(a.Reserve(200), bytes.Repeat([]byte{1}, 200))
		f := frameOf(stationMAC(2), stationMAC(1), 6)
		send(a, f)
		a.Commit() // nothing reserved: no effect
		a.Flush()
		if got := receive(b); !bytes.Equal(got, f) {
			t.Errorf("received % x", got)
		}
		should.Be(t, b.Receive() != nil, false, "more than one frame arrived")
	})
}

func TestReserveRefuses(t *testing.T) {
	ends(t, func(t *testing.T, a, _ wire.Port) {
		for _, n := range []int{-1, a.MTU() + 1, math.MinInt, math.MaxInt} {
			should.Be(t, a.Reserve(n) != nil, false, "Reserve(%d) gave bytes, the MTU is %d", n, a.MTU())
			a.Commit()
		}
		if got := a.Reserve(a.MTU()); len(got) != a.MTU() {
			t.Errorf("Reserve(MTU) gave %d bytes", len(got))
		}
	})
}

func TestLinkDownLosesFrames(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		f := frameOf(stationMAC(2), stationMAC(1), 6)
		must.Be(t, a.LinkUp() && b.LinkUp(), true, "link is down to begin with")
		a.SetLink(false)
		should.Be(t, a.LinkUp(), false, "link is up with the plug out")
		send(a, f)
		a.SetLink(true)
		waittest.Until(t, "link up with the plug in", func() bool { return a.LinkUp() && b.LinkUp() })
		time.Sleep(5 * time.Millisecond)
		should.Be(t, b.Receive() != nil, false, "a frame went over a wire without plug")
		should.Same(t, carry(a, b, f), f, "nothing arrives after the plug was put back")
	})
}

func TestOnLink(t *testing.T) {
	ends(t, func(t *testing.T, a, _ wire.Port) {
		// A wire that connects by itself may still be telling that it has.
		var mu sync.Mutex
		var seen []bool
		told := func() []bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(seen)
		}
		a.OnLink(func() {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, a.LinkUp())
		})
		a.SetLink(false)
		a.SetLink(true)
		waittest.Until(t, "told of both", func() bool {
			changes := slices.Compact(told())
			if len(changes) > 0 && changes[0] {
				changes = changes[1:]
			}
			return slices.Equal(changes, []bool{false, true})
		})
		a.OnLink(nil)
		before := len(told())
		a.SetLink(false)
		should.Be(t, len(told()), before, "told after OnLink(nil)")
	})
}

func TestUseAfterClose(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		f := frameOf(stationMAC(2), stationMAC(1), 6)
		send(a, f)
		held, reserved := await(t, b), b.Reserve(len(f))
		must.OK(t, errors.Join(a.Close(), b.Close()))
		// What was handed out can still be touched.
		copy(reserved, held)
		b.Commit()
		b.Flush()
		b.Release()
		a.SetLink(true)
		a.SetWake(func() {})
		send(a, f)
		should.Be(t, a.LinkUp() || a.Receive() != nil, false, "a closed end is alive")
		a.Release()
		send(b, f)
		b.Receive()
		b.Release()
	})
}

func TestWake(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		woken := make(chan struct{}, 64)
		b.SetWake(func() { woken <- struct{}{} })
		send(a, frameOf(stationMAC(2), stationMAC(1), 0))
		waittest.Rung(t, woken)
		should.Be(t, b.Receive() == nil, false, "woken before the frame was there")
		b.Release()
		b.SetWake(nil)
		const more = 20
		for range more {
			send(a, frameOf(stationMAC(2), stationMAC(1), 0))
			receive(b)
		}
		if n := len(woken); n > more/4 { // some calls may have begun before: a port that begins to listen calls too
			t.Errorf("woken %d times after SetWake(nil)", n)
		}
	})
}

// TestAllocatesNothing: neither a frame nor a part of one takes memory.
func TestAllocatesNothing(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		if _, nic := a.(*wire.NIC); nic {
			return // the cable takes some
		}
		f := frameOf(stationMAC(2), stationMAC(1), 100)
		sends, inParts := a.(engine.Progressive)
		receives, _ := b.(engine.Progressive)
		once := func() {
			copy(a.Reserve(len(f)), f)
			if inParts {
				sends.Publish(64)
			}
			a.Commit()
			a.Flush()
			for b.Receive() == nil {
				time.Sleep(10 * time.Microsecond)
			}
			if inParts {
				receives.Arrived()
			}
			b.Release()
		}
		once()
		if n := testing.AllocsPerRun(500, once); n != 0 {
			t.Errorf("%v allocations a frame", n)
		}
	})
}
