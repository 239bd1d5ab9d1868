package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func vciOf(c *datasheet.Cell) uint16 {
	return uint16(c.Header[1]&15)<<12 | uint16(c.Header[2])<<4 | uint16(c.Header[3])>>4
}

// rehead gives a cell a sound header.
func rehead(c *datasheet.Cell, h cells.Header) {
	var b [cells.HeaderSize]byte
	h.Put(&b)
	copy(c.Header[:], b[:])
	c.HEC = b[4]
}

// TestChannelStorm creates, connects, uses and destroys channels at random, with cells under
// way: nothing is left of device memory, and no channel sees another's cells.
func TestChannelStorm(t *testing.T) {
	w := newChannelWorld(t)
	free := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}
	r := rand.New(rand.NewPCG(1, 1))
	var live [][2]*channelEnd
	drop := func(i int) {
		p := live[i]
		for _, c := range p[r.IntN(2):] { // one side may hear of it from the other only
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
		}
		for _, c := range p {
			do(c.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: c.id})
			do(c.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: c.id})
		}
		live = append(live[:i], live[i+1:]...)
	}
	for range 300 {
		switch n := r.IntN(10); {
		case n < 2 && len(live) < 6:
			w.a.brk, w.b.brk = 0, 0 // memory may be anybody's: only counts are looked at
			for range len(live) {
				w.a.brk, w.b.brk = w.a.brk+1<<14, w.b.brk+1<<14
			}
			a, b := w.pair(nil)
			b.allow(0, 1023)
			live = append(live, [2]*channelEnd{a, b})
		case n < 3 && len(live) > 0:
			drop(r.IntN(len(live)))
		case len(live) > 0:
			p := live[r.IntN(len(live))]
			p[0].post(datasheet.ChannelPriority(r.IntN(2)), uint32(r.IntN(1024)), uint32(r.IntN(1024)))
			if r.IntN(3) == 0 {
				w.a.e.Step()
				w.b.e.Step()
			}
		}
	}
	for len(live) > 0 {
		drop(0)
	}
	w.settle()
	if got := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}; got != free {
		t.Errorf("%v bytes of device memory are free, %v before", got, free)
	}
	if a, b := w.a.e.Quiet(), w.b.e.Quiet(); !a || !b {
		t.Error("something is still under way")
	}
}
