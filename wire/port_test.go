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
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// send puts one frame on the wire. It reports whether there was room.
func send(p wire.Port, frame []byte) bool {
	q := p.Reserve(len(frame))
	if q == nil {
		return false
	}
	copy(q, frame)
	p.Commit()
	p.Flush()
	return true
}

// receive returns a copy of the next frame, nil if none comes within a second.
func receive(p wire.Port) []byte {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if f := p.Receive(); f != nil {
			c := append([]byte{}, f...)
			p.Release()
			return c
		}
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}

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
	a, err := wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, Role: wire.SHMListen})
	if err != nil {
		t.Fatal(err)
	}
	b, err := wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, Role: wire.SHMConnect})
	if err != nil {
		t.Fatal(errors.Join(err, a.Close()))
	}
	for end := time.Now().Add(10 * time.Second); !a.LinkUp() || !b.LinkUp(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(errors.Join(a.Err(), b.Err(), a.Close(), b.Close()))
		}
	}
	return a, b
}

// nicPair opens two NICs on a cable.
func nicPair(t *testing.T) (wire.Port, wire.Port) {
	t.Helper()
	var ends [2]*wire.NIC
	for i := range ends {
		var err error
		if ends[i], err = wire.NewNIC(t.Context(), wire.NICOptions{Address: cable.Scheme + ":" + t.Name()}); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); !ends[0].LinkUp() || !ends[1].LinkUp(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no link")
		}
	}
	return ends[0], ends[1]
}

// ends opens one wire of each kind for a test that must hold for all.
func ends(t *testing.T, each func(t *testing.T, a, b wire.Port)) {
	memory := func(t *testing.T) (wire.Port, wire.Port) {
		a, b, err := wire.NewMemory(wire.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	kinds := map[string]func(t *testing.T) (wire.Port, wire.Port){
		"memory": memory,
		"loopback": func(t *testing.T) (wire.Port, wire.Port) {
			l, err := wire.NewLoopback(wire.MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return l, l
		},
		"switch": func(t *testing.T) (wire.Port, wire.Port) {
			p, err := wire.NewSwitch(2, wire.SwitchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return p[0], p[1]
		},
		"UDP": func(t *testing.T) (wire.Port, wire.Port) { return udpPair(t, 0) },
		"fault": func(t *testing.T) (wire.Port, wire.Port) {
			a, b := memory(t)
			f, err := wire.NewFault(a, wire.FaultOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return f, b
		},
		"shm": sharedPair,
		"NIC": nicPair,
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			before := leaktest.Files(t)
			a, b := open(t)
			each(t, a, b)
			for range 2 { // closing twice is fine
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Error(err)
				}
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
		if a.Receive() != nil {
			t.Error("a frame that nobody sent")
		}
		a.Release() // nothing was received: no effect
		for _, n := range []int{0, 1, 63, 64, 65, 1000, a.MTU() - datasheet.HeaderSize} {
			f := frameOf(stationMAC(2), stationMAC(1), n)
			if !send(a, f) {
				t.Fatalf("no room for %d bytes", n)
			}
			got := receive(b)
			if !bytes.Equal(got, f) {
				t.Fatalf("payload of %d bytes: sent %d bytes, received %d", n, len(f), len(got))
			}
		}
	})
}

func TestFrameStaysUntilRelease(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		one, two := frameOf(stationMAC(2), stationMAC(1), 10), frameOf(stationMAC(2), stationMAC(1), 20)
		send(a, one)
		send(a, two)
		for end := time.Now().Add(time.Second); b.Receive() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			if !bytes.Equal(b.Receive(), one) {
				t.Error("Receive without Release gave another frame")
			}
		}
		b.Release()
		b.Release() // the second has no effect
		if !bytes.Equal(receive(b), two) {
			t.Error("the second frame is lost")
		}
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
		if b.Receive() != nil {
			t.Error("more than one frame arrived")
		}
	})
}

func TestReserveRefuses(t *testing.T) {
	ends(t, func(t *testing.T, a, _ wire.Port) {
		for _, n := range []int{-1, a.MTU() + 1, math.MinInt, math.MaxInt} {
			if a.Reserve(n) != nil {
				t.Errorf("Reserve(%d) gave bytes, the MTU is %d", n, a.MTU())
			}
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
		if !a.LinkUp() || !b.LinkUp() {
			t.Fatal("link is down to begin with")
		}
		a.SetLink(false)
		if a.LinkUp() {
			t.Error("link is up with the plug out")
		}
		send(a, f)
		a.SetLink(true)
		if !a.LinkUp() || !b.LinkUp() {
			t.Error("link is down with the plug in")
		}
		time.Sleep(5 * time.Millisecond)
		if b.Receive() != nil {
			t.Error("a frame went over a wire without plug")
		}
		if send(a, f); !bytes.Equal(receive(b), f) {
			t.Error("nothing arrives after the plug was put back")
		}
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
		all := told()
		changes := slices.Compact(slices.Clone(all))
		if len(changes) > 0 && changes[0] {
			changes = changes[1:]
		}
		if !slices.Equal(changes, []bool{false, true}) {
			t.Errorf("told %v", all)
		}
		a.OnLink(nil)
		before := len(told())
		a.SetLink(false)
		if len(told()) != before {
			t.Error("told after OnLink(nil)")
		}
	})
}

func TestUseAfterClose(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		f := frameOf(stationMAC(2), stationMAC(1), 6)
		send(a, f)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a.SetLink(true)
		a.SetWake(func() {})
		send(a, f)
		if a.LinkUp() || a.Receive() != nil {
			t.Error("a closed end is alive")
		}
		a.Release()
		send(b, f)
		b.Receive()
		b.Release()
	})
}

func TestWake(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		woken := make(chan struct{}, 8)
		b.SetWake(func() { woken <- struct{}{} })
		send(a, frameOf(stationMAC(2), stationMAC(1), 0))
		select {
		case <-woken:
		case <-time.After(time.Second):
			t.Fatal("nobody was woken")
		}
		if b.Receive() == nil {
			t.Error("woken before the frame was there")
		}
		b.Release()
		b.SetWake(nil)
		send(a, frameOf(stationMAC(2), stationMAC(1), 0))
		receive(b)
		if len(woken) != 0 {
			t.Error("woken after SetWake(nil)")
		}
	})
}
