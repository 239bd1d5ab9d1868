package conform

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ring"
)

// page is the size of the pages that calls ask for.
const callPage = 4096

// serveCalls runs Serve on r until the check ends or r does.
func serveCalls(t T, r *ring.Ring, handler func(*ring.Request)) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ring.Serve(ctx, r, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) && !errors.Is(err, ring.ErrPeerGone) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

func newCaller(t T, r *ring.Ring) *ring.Caller {
	t.Helper()
	c := Must(ring.NewCaller(r))(t)
	closeAtEnd(t, c)
	return c
}

// testRingCalls has goroutines fetch pages and write them back, more than the rings hold,
// with a server that answers out of order.
func testRingCalls(w *World) {
	const callers, rounds, pages = 6, 20, 8
	x, y := w.rings(reliableRing())
	lent := w.alloc(w.B, pages*callPage)
	of := func(n int) ring.Frame { return ring.Frame{Memory: lent, Offset: n * callPage, Length: callPage} }
	for n := range pages {
		pattern(of(n).Bytes(), uint64(n))
	}
	var held *ring.Request // answered after the next one
	answer := func(q *ring.Request) {
		f := q.Payload // if it brings the page, what came goes back
		if f.Length == 0 {
			f = of(int(binary.LittleEndian.Uint32(q.Bytes)) % pages)
			f.Length = min(f.Length, q.Room())
		}
		if err := q.Reply(q.Bytes, f, nil); err != nil && !errors.Is(err, ring.ErrPeerGone) {
			w.Error(err)
		}
	}
	serveCalls(w, y, func(q *ring.Request) {
		// Of pairs of fetches the second is answered first.
		if q.Payload.Length == 0 && held == nil && q.Bytes[4] == 1 {
			held = q
			return
		}
		answer(q)
		if held != nil {
			answer(held)
			held = nil
		}
	})
	c := newCaller(w, x)
	into := w.alloc(w.A, callers*callPage)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			f := ring.Frame{Memory: into, Offset: i * callPage, Length: callPage}
			want := make([]byte, callPage)
			for round := range rounds {
				n := uint32(i + round)
				q := append(binary.LittleEndian.AppendUint32(nil, n), 0)
				if i == 0 && round < rounds-1 { // another caller asks after this
					q[4] = 1
				}
				var out ring.Frame
				pattern(want, uint64(n%pages))
				if round%4 == 3 {
					out = f
					pattern(f.Bytes(), uint64(n+100))
					copy(want, f.Bytes())
					q[4] = 0
				}
				reply, err := c.Call(Context(w), q, out, f)
				if err != nil {
					w.Errorf("call %d of %d: %v", round, i, err)
					return
				}
				if !bytes.Equal(reply.Bytes(), q) || reply.Length != callPage || !bytes.Equal(f.Bytes(), want) {
					w.Errorf("call %d of %d: another page, of %d bytes", round, i, reply.Length)
					return
				}
			}
		})
	}
	// It asks until all others are done, so that no request is held for ever.
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for done := false; !done; {
		Must(c.Call(Context(w), make([]byte, 5), ring.Frame{}, ring.Frame{}))(w)
		select {
		case <-over:
			done = true
		default:
		}
	}
	wantEqual(w, c.Stats().Strays, 0, "replies that belonged to no call")
}

// testRingDeadline makes calls that are answered too late or never: nothing lands in their frames,
// and others go on.
func testRingDeadline(w *World) {
	x, y := w.rings(reliableRing())
	lent, into := w.alloc(w.B, callPage), w.alloc(w.A, callPage)
	pattern(lent.Bytes(), 1)
	late := make(chan *ring.Request, 8)
	serveCalls(w, y, func(q *ring.Request) {
		if len(q.Bytes) == 0 {
			late <- q
			return
		}
		if err := q.Reply(q.Bytes, ring.Frame{}, nil); err != nil {
			w.Error(err)
		}
	})
	c := newCaller(w, x)
	ctx, cancel := context.WithTimeout(Context(w), 30*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, nil, ring.Frame{}, ring.Frame{Memory: into, Length: callPage})
	wantError(w, "a call without a reply", err, ring.ErrDeadline, context.DeadlineExceeded)
	OK(w, (<-late).Reply([]byte("late"), ring.Frame{Memory: lent, Length: callPage}, nil))
	for i := range 20 {
		reply, err := c.Call(Context(w), []byte{byte(i)}, ring.Frame{}, ring.Frame{})
		if err != nil || len(reply.Bytes()) != 1 || reply.Bytes()[0] != byte(i) {
			w.Fatalf("call %d: %v, %v", i, reply.Bytes(), err)
		}
	}
	wantEqual(w, c.Stats().Strays, 1, "late replies")
	if !bytes.Equal(into.Bytes(), make([]byte, callPage)) {
		w.Error("a late page landed")
	}
}

// testRingCallsEnd ends servers and callers under calls.
func testRingCallsEnd(w *World) {
	x, y := w.rings(reliableRing())
	asked := make(chan *ring.Request, 8)
	serveCalls(w, y, func(q *ring.Request) { asked <- q })
	c := newCaller(w, x)
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := c.Call(Context(w), nil, ring.Frame{}, ring.Frame{})
			errs <- err
		}()
	}
	var last *ring.Request
	for range 3 {
		last = <-asked
	}
	OK(w, y.Close())
	for range 3 {
		wantError(w, "the server is gone", <-errs, ring.ErrPeerGone)
	}
	done := false
	wantError(w, "reply", last.Reply(nil, ring.Frame{}, func() { done = true }), net.ErrClosed)
	if !done {
		w.Error("a reply that failed did not say that it is done")
	}
	_, err := c.Call(Context(w), nil, ring.Frame{}, ring.Frame{})
	wantError(w, "another call", err, ring.ErrPeerGone)

	x, y = w.rings(reliableRing())
	serveCalls(w, y, func(q *ring.Request) { asked <- q })
	c = newCaller(w, x)
	go func() {
		_, err := c.Call(Context(w), nil, ring.Frame{}, ring.Frame{})
		errs <- err
	}()
	<-asked
	OK(w, c.Close())
	wantError(w, "the caller is closed", <-errs, net.ErrClosed)
	_, err = c.Call(Context(w), nil, ring.Frame{}, ring.Frame{})
	wantError(w, "another call", err, net.ErrClosed)
	OK(w, c.Close())
}
