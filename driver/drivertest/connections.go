package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
)

func testConnect(t *testing.T, a, b *driver.NIC) {
	x, y := newEnd(t, a, layout{}), newEnd(t, b, layout{})
	ctx := Context(t)
	type accepted struct {
		c   *driver.Connection
		r   driver.Remote
		err error
	}
	done := make(chan accepted, 1)
	go func() {
		c, err := b.ConnectWait(ctx, meeting)
		if err != nil {
			done <- accepted{err: err}
			return
		}
		r, err := c.Accept(ctx, y.v)
		done <- accepted{c, r, err}
	}()
	var server driver.Remote
	err := driver.ErrNoMatch
	for errors.Is(err, driver.ErrNoMatch) {
		server, err = x.v.ConnectRequest(ctx, driver.Address{MAC: b.Identity().MAC, Discriminator: meeting}, []byte("me"))
	}
	got := <-done
	if err := errors.Join(err, got.err); err != nil {
		t.Fatal(err)
	}
	if got.c.Remote.MAC != a.Identity().MAC || string(got.c.Remote.Discriminator) != "me" || got.c.MaxTransfer != x.v.Attributes().MaxTransfer ||
		got.c.Reliability != descriptors.ReliableDelivery {
		t.Errorf("the server saw %+v", got.c)
	}
	if server.Endpoint != y.v.Number() || server.MAC != b.Identity().MAC || got.r.Endpoint != x.v.Number() {
		t.Errorf("client sees %+v, server sees %+v", server, got.r)
	}
	for _, e := range []*end{x, y} {
		if s, err := e.v.Query(ctx); err != nil || s.State != descriptors.StateConnected {
			t.Errorf("state %+v, %v", s, err)
		}
	}
	if _, err := x.v.ConnectRequest(ctx, driver.Address{MAC: b.Identity().MAC, Discriminator: meeting}, nil); !errors.Is(err, driver.ErrInvalidState) {
		t.Errorf("connecting a connected VI: %v", err)
	}
	if _, err := got.c.Accept(ctx, y.v); !errors.Is(err, driver.ErrInvalidParameter) {
		t.Errorf("accepting twice: %v", err)
	}
	transfer(t, x, y, []byte("hello"))
}

func testConnectRefused(t *testing.T, a, b *driver.NIC) {
	x := newEnd(t, a, layout{})
	ctx := Context(t)
	to := driver.Address{MAC: b.Identity().MAC, Discriminator: meeting}

	if _, err := x.v.ConnectRequest(ctx, to, nil); !errors.Is(err, driver.ErrNoMatch) {
		t.Errorf("nobody waits: %v", err)
	}
	if got := x.state(t); got != descriptors.StateIdle {
		t.Errorf("state %v", got)
	}

	// The server tries VIs that do not fit, then turns the client down.
	other := newEnd(t, b, layout{reliability: descriptors.Unreliable})
	smaller := newEnd(t, b, layout{maxTransfer: 1000})
	done := make(chan error, 1)
	go func() {
		c, err := b.ConnectWait(ctx, meeting)
		if err == nil {
			if _, err := c.Accept(ctx, other.v); !errors.Is(err, driver.ErrInvalidReliability) {
				t.Errorf("accepting with another reliability: %v", err)
			}
			if _, err := c.Accept(ctx, smaller.v); !errors.Is(err, driver.ErrInvalidMTU) {
				t.Errorf("accepting with another transfer size: %v", err)
			}
			if _, err := c.Accept(ctx, x.v); !errors.Is(err, driver.ErrInvalidParameter) {
				t.Errorf("accepting with a VI of another NIC: %v", err)
			}
			err = c.Reject(ctx)
		}
		done <- err
	}()
	if err := requestUntilWaiting(ctx, x.v, to.MAC, meeting); !errors.Is(err, driver.ErrReject) {
		t.Errorf("rejected: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := x.state(t); got != descriptors.StateIdle {
		t.Errorf("state %v", got)
	}
	// All of them can still connect.
	y := newEnd(t, b, layout{})
	connect(t, x, y)
	transfer(t, x, y, []byte("after all"))
}

func testConnectContext(t *testing.T, a, b *driver.NIC) {
	x := newEnd(t, a, layout{})
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.ConnectWait(short, []byte("nobody")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody comes: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := b.ConnectWait(canceled, []byte("nobody")); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody comes: %v", err)
	}
	// A server that has been asked and says nothing.
	type waited struct {
		c   *driver.Connection
		err error
	}
	done := make(chan waited, 1)
	go func() {
		c, err := b.ConnectWait(Context(t), meeting)
		done <- waited{c, err}
	}()
	// Long enough for the server to have been asked, on a slow machine too.
	err := driver.ErrNoMatch
	for errors.Is(err, driver.ErrNoMatch) {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = x.v.ConnectRequest(short, driver.Address{MAC: b.Identity().MAC, Discriminator: meeting}, nil)
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	if got := x.state(t); got != descriptors.StateIdle {
		t.Errorf("state %v", got)
	}
	// Now it is too late to answer.
	asked := <-done
	if asked.err != nil {
		t.Fatal(asked.err)
	}
	y := newEnd(t, b, layout{})
	for range 2 {
		if _, err := asked.c.Accept(Context(t), y.v); !errors.Is(err, driver.ErrWithdrawn) || errors.Is(err, driver.ErrInvalidParameter) {
			t.Errorf("accepting too late: %v", err)
		}
	}
	if err := asked.c.Reject(Context(t)); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("rejecting too late: %v", err)
	}
	connect(t, x, y)
}

func testIdle(t *testing.T, a, b *driver.NIC) {
	x, y := newEnd(t, a, layout{}), newEnd(t, b, layout{})
	send, recv := x.descriptor(t, 0, 8), y.descriptor(t, 0, 8)
	if err := errors.Join(x.v.PostSend(send), y.v.PostRecv(recv)); err != nil {
		t.Fatal(err)
	}
	d, err := x.v.SendWait(Context(t))
	if d != send {
		t.Errorf("descriptor %v", d)
	}
	failed(t, "a send without a connection", err, descriptors.StatusFlushed)
	// The receive is held for the connection.
	connect(t, x, y)
	send = x.descriptor(t, 1, 8)
	if err := x.v.PostSend(send); err != nil {
		t.Fatal(err)
	}
	takeRecv(t, y, recv)
	takeSend(t, x, send)
}

func testDisconnect(t *testing.T, a, b *driver.NIC) {
	x, y := connected(t, a, b, layout{})
	lost := make(chan descriptors.Event, 16)
	b.OnEvent(func(e descriptors.Event) {
		if e.Code == descriptors.EventConnectionLost {
			lost <- e
		}
	})
	var xr, yr []*descriptors.Descriptor
	for i := range 3 {
		xr, yr = append(xr, x.descriptor(t, i, 64)), append(yr, y.descriptor(t, i, 64))
	}
	for e, ds := range map[*end][]*descriptors.Descriptor{x: xr, y: yr} {
		if n, err := e.v.PostRecvBatch(ds); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := x.v.Disconnect(Context(t)); err != nil {
		t.Fatal(err)
	}
	flushed(t, x, xr, nil)
	flushed(t, y, yr, driver.ErrDisconnected)
	if got := x.state(t); got != descriptors.StateIdle {
		t.Errorf("this end is %v", got)
	}
	y.reaches(t, descriptors.StateError)
	e := <-lost
	if e.Endpoint != y.v.Number() || driver.ConnectionEnd(descriptors.Result(e.Detail)) != driver.ErrDisconnected {
		t.Errorf("event %+v", e)
	}
	// In the error state everything completes at once.
	send := y.descriptor(t, 0, 8)
	if err := y.v.PostSend(send); err != nil {
		t.Fatal(err)
	}
	_, err := y.v.SendWait(Context(t))
	failed(t, "a send in the error state", err, descriptors.StatusFlushed)
	if !errors.Is(err, driver.ErrDisconnected) {
		t.Errorf("a send in the error state: %v", err)
	}
	if _, err := y.v.ConnectRequest(Context(t), driver.Address{MAC: a.Identity().MAC}, nil); !errors.Is(err, driver.ErrInvalidState) || !errors.Is(err, driver.ErrDisconnected) {
		t.Errorf("connecting in the error state: %v", err)
	}
	if err := y.v.Disconnect(Context(t)); err != nil {
		t.Fatal(err)
	}
	connect(t, x, y)
	transfer(t, y, x, []byte("again"))
}

// flushed takes receives back, in order. why is how their errors say that the
// connection ended, nil for not at all.
func flushed(t *testing.T, e *end, ds []*descriptors.Descriptor, why error) {
	t.Helper()
	for i, want := range ds {
		d, err := e.v.RecvWait(Context(t))
		if d != want {
			t.Errorf("descriptor %d is not the one that was posted", i)
		}
		failed(t, "a receive of a connection that has ended", err, descriptors.StatusFlushed)
		for _, end := range []error{driver.ErrDisconnected, driver.ErrPeerLost, driver.ErrConnectionBroken} {
			if errors.Is(err, end) != (end == why) {
				t.Errorf("a receive of a connection that has ended: %v, want %v", err, why)
			}
		}
	}
	if _, err := e.v.RecvDone(); err != driver.ErrQueueEmpty {
		t.Error(err)
	}
}

func testPeerDestroyed(t *testing.T, a, b *driver.NIC) {
	x, y := connected(t, a, b, layout{})
	recv := y.descriptor(t, 0, 8)
	if err := y.v.PostRecv(recv); err != nil {
		t.Fatal(err)
	}
	if err := x.v.Destroy(Context(t)); err != nil {
		t.Fatal(err)
	}
	flushed(t, y, []*descriptors.Descriptor{recv}, driver.ErrDisconnected)
	y.reaches(t, descriptors.StateError)
	if err := x.v.Destroy(Context(t)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("destroyed twice: %v", err)
	}
	if err := x.v.PostSend(x.descriptor(t, 0, 8)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("posted to a destroyed VI: %v", err)
	}
}
