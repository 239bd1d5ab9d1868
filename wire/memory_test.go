package wire_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
				should.Hold(t, errors.Is(err, wire.ErrOptions) && errors.Is(lerr, wire.ErrOptions), "errors %v and %v, want ErrOptions", err, lerr)
				return
			}
			if err != nil || lerr != nil {
				t.Fatal(err, lerr)
			}
			should.Be(t, a.MTU(), tt.mtu, "MTU")
			should.Be(t, l.MTU(), tt.mtu, "MTU")
			// A frame of each size can always be sent through an idle wire.
			for range 100 {
				must.Be(t, !send(l, make([]byte, tt.mtu)) || len(receive(l)) != tt.mtu, false, "the largest frame does not pass")
			}
		})
	}
}

func TestMemoryHoldsFourFrames(t *testing.T) {
	a, b := memoryPair(t, wire.MemoryOptions{MTU: 5000, Ring: 1})
	n := 0
	for a.Reserve(5000) != nil {
		a.Commit()
		n++
	}
	should.Be(t, n < 4, false, "room for %d frames", n)
	should.Be(t, b.Receive() != nil, false, "a frame arrived before Flush")
	a.Flush()
	for range n {
		must.Be(t, receive(b) == nil, false, "a frame is lost")
	}
	b.Receive() // an empty look gives the room back
	should.Be(t, a.Reserve(5000) == nil, false, "no room after everything was taken")
}

func TestMemoryUnplugsBothEnds(t *testing.T) {
	a, b := memoryPair(t, wire.MemoryOptions{})
	b.SetLink(false)
	a.SetLink(true)
	should.Be(t, a.LinkUp(), false, "link is up though the other plug is out")
	b.SetLink(true)
	should.Be(t, a.LinkUp(), true, "link is down with both plugs in")
	told := 0
	a.OnLink(func() { told++ })
	must.OK(t, b.Close())
	b.SetLink(true)
	should.Be(t, a.LinkUp(), false, "link is up though the other end is closed")
	should.Be(t, told == 0, false, "nobody was told when the other end closed")
	should.Be(t, !send(a, make([]byte, 64)) || a.Receive() != nil, false, "the open end does not work")
}

// TestMemoryLastFrames: what was sent before an end was closed arrives at the other, as
// frames do that are on a cable: such as the last of a NIC that is closed, to its peers.
func TestMemoryLastFrames(t *testing.T) {
	a, b := memoryPair(t, wire.MemoryOptions{})
	defer b.Close()
	want := frameOf(stationMAC(2), stationMAC(1), 7)
	send(a, want)
	must.OK(t, a.Close())
	should.Be(t, b.LinkUp(), false, "the link is up though the other end is closed")
	should.Same(t, receive(b), want, "the last frame")
	should.Be(t, b.Receive() != nil, false, "a frame after the last one")
	send(b, want) // to nobody
	should.Be(t, b.Receive() != nil, false, "a frame came back")
}
