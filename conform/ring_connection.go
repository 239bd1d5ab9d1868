package conform

import (
	"errors"
	"net"
	"strings"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// testRingConnection connects what does not fit together, and asks for what there is not.
func testRingConnection(w *World) {
	ctx := Context(w)
	l := Must(ring.Listen(w.B, "rings", reliableRing()))(w)
	to := l.Address()
	for name, change := range map[string]func(*ring.Options){
		"reliability": func(o *ring.Options) { o.Reliability = via.Unreliable },
		"payload":     func(o *ring.Options) { o.MaxPayload++ },
	} {
		o := reliableRing()
		change(&o)
		_, err := ring.Dial(ctx, w.A, to.String(), o)
		wantError(w, name, err, via.ErrReject)
	}
	// A VI finds no VI there.
	_, err := via.Dial(ctx, w.A, to.String(), via.ConnOptions{})
	wantError(w, "a VI", err, via.ErrReject)
	OK(w, l.Close())
	_, err = l.Accept(ctx)
	wantError(w, "accept after the end", err, net.ErrClosed)
	OK(w, l.Close()) // again

	for name, c := range map[string]struct {
		o    ring.Options
		want error
	}{
		"entries":      {ring.Options{Entries: w.A.Query().MaxDescriptors + 1}, via.ErrInvalidParameter},
		"few entries":  {ring.Options{Entries: -1}, via.ErrInvalidParameter},
		"payload":      {ring.Options{MaxPayload: int(w.A.Query().MaxTransfer)}, via.ErrInvalidMTU},
		"less payload": {ring.Options{MaxPayload: -2}, via.ErrInvalidMTU},
		"frames":       {ring.Options{FrameSize: -2}, via.ErrInvalidParameter},
		"access":       {ring.Options{Access: ring.Shadow + 1}, via.ErrInvalidParameter},
	} {
		_, err := ring.Dial(ctx, w.A, to.String(), c.o)
		wantError(w, name, err, c.want)
	}
	_, err = ring.Listen(w.A, string(make([]byte, via.MaxDiscriminator+1)), ring.Options{})
	wantError(w, "a long name", err, via.ErrInvalidParameter)
	_, err = ring.Dial(ctx, w.A, to.MAC.String()+"/"+strings.Repeat("x", via.MaxDiscriminator+1), ring.Options{})
	wantError(w, "no address", err, via.ErrInvalidParameter)

	// With no choices at all both ends fit each other.
	x, y := w.rings(ring.Options{})
	if x.MaxPayload() != y.MaxPayload() || x.Entries() < 2 || x.RemoteAddress().String() != y.LocalAddress().String() {
		w.Errorf("%d and %d bytes, %v, %v", x.MaxPayload(), y.MaxPayload(), x.RemoteAddress(), y.LocalAddress())
	}
}

// testRingLast ends connections while one call of the other program waits, and another learns of the
// end by sending. What came before is got all the same.
func testRingLast(w *World) {
	for range 8 {
		x, y := w.rings(reliableRing())
		taken, learned := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := y.Wait(Context(w))
			taken <- err
		}()
		go func() {
			for {
				e, err := y.GetSend()
				if err == nil {
					err = y.ReleaseSend(e)
				}
				if y.CheckSent(); err != nil && err != via.ErrQueueFull {
					learned <- err
					return
				}
			}
		}()
		w.sendMessage(x, "last", ring.Frame{}, nil)
		w.settle(x)
		OK(w, x.Close())
		OK(w, <-taken)
		wantError(w, "send after the end", <-learned, ring.ErrPeerGone)
		OK(w, y.Close())
	}
}

// testRingEndings ends connections: what had come can be got, and then the other end is gone.
func testRingEndings(w *World) {
	x, y := w.rings(reliableRing())
	w.sendMessage(x, "last", ring.Frame{}, nil)
	w.sendMessage(y, "crossing", ring.Frame{}, nil)
	w.receiveMessage(x, "crossing")
	w.settle(x)
	OK(w, x.Close())
	OK(w, x.Close())
	_, err := x.GetSend()
	wantError(w, "send after the end", err, net.ErrClosed)
	_, err = x.GetRecv()
	wantError(w, "receive after the end", err, net.ErrClosed)
	e := w.receiveMessage(y, "last")
	w.Until("the end", func() bool {
		_, err = y.GetRecv()
		return err != via.ErrNotDone
	})
	wantError(w, "receive", err, ring.ErrPeerGone, via.ErrDisconnected)
	_, err = y.GetSend()
	wantError(w, "send", err, ring.ErrPeerGone)
	_, err = y.Wait(Context(w))
	wantError(w, "wait", err, ring.ErrPeerGone)
	if err := y.ReleaseRecv(e); err != nil && !errors.Is(err, ring.ErrPeerGone) {
		w.Error(err)
	}
	OK(w, y.Close())

	// The NIC goes away under a ring.
	x, y = w.rings(reliableRing())
	waits := make(chan error, 1)
	go func() {
		_, err := y.Wait(Context(w))
		waits <- err
	}()
	e = Must(y.GetSend())(w)
	OK(w, w.B.Close())
	wantError(w, "wait on a closed NIC", <-waits, net.ErrClosed)
	wantError(w, "release on a closed NIC", y.ReleaseSend(e), net.ErrClosed)
	_, err = y.GetRecv()
	wantError(w, "receive on a closed NIC", err, net.ErrClosed)
	OK(w, y.Close())
	w.Until("the end", func() bool {
		_, err = x.GetRecv()
		return err != via.ErrNotDone
	})
	wantError(w, "receive", err, ring.ErrPeerGone)
	OK(w, x.Close())
}

// testRingMemory makes rings until the NIC has no memory left: then that is said, and all of it
// comes back.
func testRingMemory(w *World) {
	ctx := Context(w)
	d := w.A.NIC
	before := freeMemory(w, d)
	a := driver.RingAttributes{Reliability: via.Unreliable, Ptag: w.A.Ptag(), SendDepth: 4096, RecvDepth: 4096}
	var rings []*driver.Ring
	for {
		r, err := d.CreateRing(ctx, a)
		if err != nil {
			wantError(w, "no memory left", err, via.ErrResource)
			break
		}
		if now := freeMemory(w, d); now >= before {
			w.Fatalf("%d bytes were free, with a ring %d", before, now)
		}
		if rings = append(rings, r); len(rings) > 1<<12 {
			w.Fatal("there is no end to the NIC's memory")
		}
	}
	if len(rings) == 0 {
		w.Error("no ring of 4096 entries fits")
	}
	for _, r := range rings {
		OK(w, r.Close(ctx))
		OK(w, r.Close(ctx)) // again
		wantError(w, "post after the end", r.Send.Post(1), net.ErrClosed)
	}
	if now := freeMemory(w, d); now != before {
		w.Errorf("%d bytes were free, and %d are", before, now)
	}
}

func freeMemory(t T, d *driver.NIC) uint32 {
	t.Helper()
	n, all, err := d.FreeSRAM()
	OK(t, err)
	if n == 0 && all == 0 {
		t.Fatal("a NIC with rings has no memory to give out")
	}
	return n
}
