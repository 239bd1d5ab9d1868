package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestMemoryOptions(t *testing.T) {
	tests := []struct {
		name string
		o    wire.MemoryOptions
		mtu  int // 0: refused
	}{
		{"default", wire.MemoryOptions{}, wire.DefaultMemoryMTU},
		{"smallest", wire.MemoryOptions{MTU: datasheet.MinMTU, Ring: 1}, datasheet.MinMTU},
		{"largest frames in a ring that is too small", wire.MemoryOptions{MTU: datasheet.MaxMTU, Ring: 1}, datasheet.MaxMTU},
		{"MTU too small", wire.MemoryOptions{MTU: datasheet.MinMTU - 1}, 0},
		{"MTU too large", wire.MemoryOptions{MTU: datasheet.MaxMTU + 1}, 0},
		{"MTU negative", wire.MemoryOptions{MTU: -1}, 0},
		{"ring negative", wire.MemoryOptions{Ring: -1}, 0},
		{"ring too large", wire.MemoryOptions{Ring: 1<<30 + 1}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, _, err := wire.NewMemory(tt.o)
			l, lerr := wire.NewLoopback(tt.o)
			if tt.mtu == 0 {
				if !errors.Is(err, wire.ErrOptions) || !errors.Is(lerr, wire.ErrOptions) {
					t.Errorf("errors %v and %v, want ErrOptions", err, lerr)
				}
				return
			}
			if err != nil || lerr != nil {
				t.Fatal(err, lerr)
			}
			if a.MTU() != tt.mtu || l.MTU() != tt.mtu {
				t.Errorf("MTU %d and %d, want %d", a.MTU(), l.MTU(), tt.mtu)
			}
			// A frame of each size can always be sent through an idle wire.
			for range 100 {
				if !send(l, make([]byte, tt.mtu)) || len(receive(l)) != tt.mtu {
					t.Fatal("the largest frame does not pass")
				}
			}
		})
	}
}

func TestMemoryHoldsFourFrames(t *testing.T) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: 5000, Ring: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for a.Reserve(5000) != nil {
		a.Commit()
		n++
	}
	if n < 4 {
		t.Errorf("room for %d frames", n)
	}
	if b.Receive() != nil {
		t.Error("a frame arrived before Flush")
	}
	a.Flush()
	for range n {
		if receive(b) == nil {
			t.Fatal("a frame is lost")
		}
	}
	b.Receive() // an empty look gives the room back
	if a.Reserve(5000) == nil {
		t.Error("no room after everything was taken")
	}
}

func TestMemoryUnplugsBothEnds(t *testing.T) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.SetLink(false)
	a.SetLink(true)
	if a.LinkUp() {
		t.Error("link is up though the other plug is out")
	}
	b.SetLink(true)
	if !a.LinkUp() {
		t.Error("link is down with both plugs in")
	}
	told := 0
	a.OnLink(func() { told++ })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.SetLink(true)
	if a.LinkUp() {
		t.Error("link is up though the other end is closed")
	}
	if told == 0 {
		t.Error("nobody was told when the other end closed")
	}
	if !send(a, make([]byte, 64)) || a.Receive() != nil {
		t.Error("the open end does not work")
	}
}

// TestMemoryIsAQueue compares a wire with a list of frames.
func TestMemoryIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mtu = 700
		a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: mtu, Ring: 1})
		if err != nil {
			t.Fatal(err)
		}
		var committed, visible [][]byte
		number := byte(0)
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				n := rapid.IntRange(0, mtu).Draw(t, "size")
				p := a.Reserve(n)
				if p == nil {
					if len(committed)+len(visible) == 0 {
						t.Fatal("an empty wire has no room")
					}
					return
				}
				number++
				f := bytes.Repeat([]byte{number}, n)
				copy(p, f)
				a.Commit()
				committed = append(committed, f)
			},
			"abandon": func(*rapid.T) { a.Reserve(1 + int(number)) },
			"flush": func(*rapid.T) {
				a.Flush()
				visible, committed = append(visible, committed...), nil
			},
			"receive": func(t *rapid.T) {
				f := b.Receive()
				if len(visible) == 0 {
					if f != nil {
						t.Fatal("a frame that was not flushed")
					}
					return
				}
				if f == nil || !bytes.Equal(f, visible[0]) {
					t.Fatalf("received %d bytes, want %d", len(f), len(visible[0]))
				}
				b.Release()
				visible = visible[1:]
			},
		})
	})
}

// TestMemoryTwoThreads has frames of all sizes cross while both ends run.
func TestMemoryTwoThreads(t *testing.T) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{MTU: 1024, Ring: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	const frames = 20000
	go func() {
		for i := uint32(0); i < frames; {
			p := a.Reserve(8 + int(i*37%1000))
			if p == nil {
				a.Flush()
				runtime.Gosched()
				continue
			}
			binary.LittleEndian.PutUint32(p, i)
			binary.LittleEndian.PutUint32(p[len(p)-4:], ^i)
			a.Commit()
			if i++; i%5 == 0 || i == frames {
				a.Flush()
			}
		}
	}()
	for i := uint32(0); i < frames; {
		f := b.Receive()
		if f == nil {
			runtime.Gosched()
			continue
		}
		if len(f) != 8+int(i*37%1000) || binary.LittleEndian.Uint32(f) != i || binary.LittleEndian.Uint32(f[len(f)-4:]) != ^i {
			t.Fatalf("frame %d is damaged: %d bytes", i, len(f))
		}
		b.Release()
		i++
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { bounce(a, b, 128) }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func bounce(a, b wire.Port, n int) {
	a.Reserve(n)
	a.Commit()
	a.Flush()
	b.Receive()
	b.Release()
}

func BenchmarkMemory(b *testing.B) {
	x, y, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("frame", func(b *testing.B) {
		for b.Loop() {
			bounce(x, y, 128)
		}
	})
	b.Run("batch of 16", func(b *testing.B) {
		for b.Loop() {
			for range 16 {
				x.Reserve(128)
				x.Commit()
			}
			x.Flush()
			for y.Receive() != nil {
				y.Release()
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(16*b.N), "ns/frame")
	})
}

// TestMemoryLastFrames: what was sent before an end was closed arrives at the other, as
// frames do that are on a cable: such as the last of a NIC that is closed, to its peers.
func TestMemoryLastFrames(t *testing.T) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := frameOf(stationMAC(2), stationMAC(1), 7)
	send(a, want)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b.LinkUp() {
		t.Error("the link is up though the other end is closed")
	}
	if got := receive(b); !bytes.Equal(got, want) {
		t.Errorf("the last frame is %x, want %x", got, want)
	}
	if got := receive(b); got != nil {
		t.Errorf("%x after the last frame", got)
	}
	send(b, want) // to nobody
	if got := receive(b); got != nil {
		t.Errorf("%x came back", got)
	}
}
