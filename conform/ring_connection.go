package conform

import (
	"context"
	"net"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// lookedAt is a context that tells when it is looked at.
type lookedAt struct {
	context.Context
	look func()
}

func (c lookedAt) Err() error { c.look(); return c.Context.Err() }

// testRingLast ends a connection while one call waits, and another learns of the end by sending. What came before is got
// all the same.
func testRingLast(w *World) {
	x, y := w.rings(reliableRing())
	waits, learned, taken := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := y.Wait(lookedAt{Context(w), sync.OnceFunc(func() { close(waits); <-learned })})
		taken <- err
	}()
	<-waits
	w.sendMessage(x, "last", ring.Frame{}, nil)
	w.settle(x)
	OK(w, x.Close())
	err := error(via.ErrQueueFull)
	for ; err == nil || err == via.ErrQueueFull; y.CheckSent() {
		var e *ring.Entry
		if e, err = y.GetSend(); err == nil {
			err = y.ReleaseSend(e)
		}
	}
	close(learned)
	OK(w, <-taken)
	wantError(w, "send after the end", err, ring.ErrPeerGone)
}

// testRingMemory makes rings until the NIC has no memory left.
func testRingMemory(w *World) {
	a := driver.RingAttributes{Reliability: via.Unreliable, Ptag: w.A.Ptag(), SendDepth: 4096, RecvDepth: 4096}
	rings := exhaust(w, func(ctx context.Context) (*driver.Ring, error) { return w.A.CreateRing(ctx, a) })
	for _, r := range rings {
		wantError(w, "post after the end", r.Send.Post(1), net.ErrClosed)
	}
}

// exhaust makes objects in A's memory until there is none left: then that is said, and all of it comes back.
func exhaust[O interface{ Close(context.Context) error }](w *World, create func(context.Context) (O, error)) (made []O) {
	w.Helper()
	ctx := Context(w)
	before := freeMemory(w)
	for {
		o, err := create(ctx)
		if err != nil {
			wantError(w, "no memory left", err, via.ErrResource)
			break
		}
		if made = append(made, o); len(made) > 1<<12 {
			w.Fatal("there is no end to the NIC's memory")
		}
	}
	if len(made) == 0 {
		w.Error("there is no room for one")
	} else if now := freeMemory(w); now >= before {
		w.Errorf("%d bytes were free, and then %d", before, now)
	}
	for _, o := range made {
		OK(w, o.Close(ctx))
		OK(w, o.Close(ctx)) // again
	}
	wantEqual(w, freeMemory(w), before, "free bytes in the end")
	return made
}

func freeMemory(w *World) uint32 {
	w.Helper()
	n, all, err := w.A.FreeSRAM()
	OK(w, err)
	if n == 0 && all == 0 {
		w.Fatal("the NIC has no memory to give out")
	}
	return n
}
