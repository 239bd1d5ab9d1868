package ring_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestNoAllocation: messages and calls allocate nothing, whichever way messages are
// accessed.
func TestNoAllocation(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	for _, access := range []ring.Access{ring.SRAM, ring.Shadow} {
		t.Run(fmt.Sprint("access ", access), func(t *testing.T) {
			x, y := connect(t, a, b, ring.Options{Access: access, Reliability: via.ReliableDelivery})
			m := alloc(t, a, 8192)
			ctx := conform.Context(t)
			message := func() {
				e, err := x.GetSend()
				if err != nil {
					t.Fatal(err)
				}
				p, err := e.Reserve(8)
				if err != nil {
					t.Fatal(err)
				}
				copy(p, "message!")
				if err := e.Attach(ring.Frame{Memory: m, Length: 8192}, nil); err != nil {
					t.Fatal(err)
				}
				if err := x.ReleaseSend(e); err != nil {
					t.Fatal(err)
				}
				if e, err = y.Wait(ctx); err != nil || e.Length() != 8192 {
					t.Fatal(err)
				}
				if err := y.ReleaseRecv(e); err != nil {
					t.Fatal(err)
				}
			}
			// On a loaded machine waits sleep, which allocates: the fewest of some rounds count.
			least := testing.AllocsPerRun(50, message)
			for tries := 0; least != 0 && tries < 20; tries++ {
				least = min(least, testing.AllocsPerRun(50, message))
			}
			if least != 0 {
				t.Errorf("%v allocations a message", least)
			}
		})
	}
}

func TestCallNoAllocation(t *testing.T) {
	const size = 8192
	a, b := conform.OnMemory(t, "", via.Options{})
	x, y := connect(t, a, b, ring.Options{Reliability: via.ReliableDelivery})
	lent, into := alloc(t, b, size), alloc(t, a, size)
	serve(t, y, pages(t, lent, size))
	c := newCaller(t, x)
	ctx := conform.Context(t)
	request := make([]byte, 4)
	call := func() {
		reply, err := c.Call(ctx, request, ring.Frame{}, ring.Frame{Memory: into, Length: size})
		if err != nil || reply.Length != size {
			t.Fatal(err)
		}
	}
	for range 300 {
		call()
	}
	if n := testing.AllocsPerRun(1000, call); n >= 1 {
		t.Errorf("%v allocations a call", n)
	}
}
