package ringtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/ring"
)

// page is the size of the pages that calls ask for.
const page = 4096

// serve runs Serve on r until the check ends or r does.
func serve(t viatest.T, r *ring.Ring, handler func(*ring.Request)) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ring.Serve(ctx, r, handler) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) && !errors.Is(err, ring.ErrPeerGone) && !errors.Is(err, ring.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

func newCaller(t viatest.T, r *ring.Ring) *ring.Caller {
	t.Helper()
	c := viatest.Must(ring.NewCaller(r))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, ring.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// testCalls has goroutines fetch pages and write them back, more than the rings hold,
// with a server that answers out of order.
func testCalls(t viatest.T, p *viatest.Pair) {
	const callers, rounds, pages = 6, 20, 8
	x, y := connect(t, p, reliable())
	lent := alloc(t, p.B, pages*page)
	of := func(n int) ring.Frame { return ring.Frame{Memory: lent, Offset: n * page, Length: page} }
	for n := range pages {
		pattern(of(n).Bytes(), uint32(n))
	}
	var held *ring.Request // answered after the next one
	answer := func(q *ring.Request) {
		n := int(binary.LittleEndian.Uint32(q.Bytes)) % pages
		if q.Payload.Length > 0 { // it brings the page: what came goes back
			if err := q.Reply(q.Bytes, q.Payload, nil); err != nil && !errors.Is(err, ring.ErrPeerGone) {
				t.Error(err)
			}
			return
		}
		f := of(n)
		f.Length = min(f.Length, q.Room())
		if err := q.Reply(q.Bytes, f, nil); err != nil && !errors.Is(err, ring.ErrPeerGone) {
			t.Error(err)
		}
	}
	serve(t, y, func(q *ring.Request) {
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
	c := newCaller(t, x)
	into := alloc(t, p.A, callers*page)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			f := ring.Frame{Memory: into, Offset: i * page, Length: page}
			want := make([]byte, page)
			for round := range rounds {
				n := uint32(i + round)
				q := append(binary.LittleEndian.AppendUint32(nil, n), 0)
				if i == 0 && round < rounds-1 { // somebody else asks after this
					q[4] = 1
				}
				var out ring.Frame
				pattern(want, n%pages)
				if round%4 == 3 {
					out = f
					pattern(f.Bytes(), n+100)
					copy(want, f.Bytes())
					q[4] = 0
				}
				reply, err := c.Call(viatest.Context(t), q, out, f)
				if err != nil {
					t.Errorf("call %d of %d: %v", round, i, err)
					return
				}
				if !bytes.Equal(reply.Bytes(), q) || reply.Length != page || !bytes.Equal(f.Bytes(), want) {
					t.Errorf("call %d of %d: another page, of %d bytes", round, i, reply.Length)
					return
				}
			}
		})
	}
	// It asks until all others are done, so that no request is held for ever.
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for done := false; !done; {
		if _, err := c.Call(viatest.Context(t), make([]byte, 5), ring.Frame{}, ring.Frame{}); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-over:
			done = true
		default:
		}
	}
	if n := c.Strays(); n != 0 {
		t.Errorf("%d replies belonged to no call", n)
	}
}

// testDeadline makes calls that nobody answers, or too late: nothing lands where they
// would have had it, and others go on.
func testDeadline(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	lent, into := alloc(t, p.B, page), alloc(t, p.A, page)
	pattern(lent.Bytes(), 1)
	late := make(chan *ring.Request, 8)
	serve(t, y, func(q *ring.Request) {
		if len(q.Bytes) == 0 {
			late <- q
			return
		}
		if err := q.Reply(q.Bytes, ring.Frame{}, nil); err != nil {
			t.Error(err)
		}
	})
	c := newCaller(t, x)
	ctx, cancel := context.WithTimeout(viatest.Context(t), 30*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, nil, ring.Frame{}, ring.Frame{Memory: into, Length: page})
	viatest.WantError(t, "a call without a reply", err, ring.ErrDeadline, context.DeadlineExceeded)
	c.SetTimeout(30 * time.Millisecond)
	ended := make(chan error, 1)
	viatest.OK(t, c.Start(nil, ring.Frame{}, ring.Frame{Memory: into, Length: page}, func(_ ring.Reply, err error) { ended <- err }))
	viatest.WantError(t, "a call in the background", <-ended, ring.ErrDeadline)
	for range 2 {
		viatest.OK(t, (<-late).Reply([]byte("late"), ring.Frame{Memory: lent, Length: page}, nil))
	}
	c.SetTimeout(viatest.Patience)
	for i := range 20 {
		reply, err := c.Call(viatest.Context(t), []byte{byte(i)}, ring.Frame{}, ring.Frame{})
		if err != nil || len(reply.Bytes()) != 1 || reply.Bytes()[0] != byte(i) {
			t.Fatalf("call %d: %v, %v", i, reply.Bytes(), err)
		}
	}
	if n := c.Strays(); n != 2 {
		t.Errorf("%d late replies, want 2", n)
	}
	if !bytes.Equal(into.Bytes(), make([]byte, page)) {
		t.Error("a late page landed")
	}
}

// testCallsEnd ends servers and callers under calls.
func testCallsEnd(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	asked := make(chan *ring.Request, 8)
	serve(t, y, func(q *ring.Request) { asked <- q })
	c := newCaller(t, x)
	errs := make(chan error, 3)
	for range 2 {
		go func() {
			_, err := c.Call(viatest.Context(t), nil, ring.Frame{}, ring.Frame{})
			errs <- err
		}()
	}
	viatest.OK(t, c.Start(nil, ring.Frame{}, ring.Frame{}, func(_ ring.Reply, err error) { errs <- err }))
	var last *ring.Request
	for range 3 {
		last = <-asked
	}
	viatest.OK(t, y.Close())
	for range 3 {
		viatest.WantError(t, "the server is gone", <-errs, ring.ErrPeerGone)
	}
	done := false
	viatest.WantError(t, "reply", last.Reply(nil, ring.Frame{}, func() { done = true }), ring.ErrClosed)
	if !done {
		t.Error("a reply that failed did not say that it is done")
	}
	_, err := c.Call(viatest.Context(t), nil, ring.Frame{}, ring.Frame{})
	viatest.WantError(t, "another call", err, ring.ErrPeerGone)

	x, y = connect(t, p, reliable())
	serve(t, y, func(q *ring.Request) { asked <- q })
	c = newCaller(t, x)
	go func() {
		_, err := c.Call(viatest.Context(t), nil, ring.Frame{}, ring.Frame{})
		errs <- err
	}()
	<-asked
	viatest.OK(t, c.Close())
	viatest.WantError(t, "the caller is closed", <-errs, ring.ErrClosed)
	_, err = c.Call(viatest.Context(t), nil, ring.Frame{}, ring.Frame{})
	viatest.WantError(t, "another call", err, ring.ErrClosed)
	viatest.WantError(t, "closed twice", c.Close(), ring.ErrClosed)
}
