package viatest

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// at is the address of a NIC's connection point.
func at(n *via.NIC, name string) via.Address {
	return via.Address{MAC: n.Query().Address, Discriminator: []byte(name)}
}

// testPeers connects VIs that both ask.
func testPeers(t T, p *Pair) {
	ctx := Context(t)
	for name, c := range map[string]struct{ here, there string }{
		"other names": {"left", "right"}, "the same name": {"peers", "peers"}, "no names": {"", ""}, "swapped": {"right", "left"},
	} {
		subtest(t, name, func(t T) {
			x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
			OK(t, x.VI.ConnectPeer(ctx, at(p.B, c.there), []byte(c.here)))
			// The other one comes late.
			for range 20 {
				if _, err := x.VI.ConnectPeerDone(); err != via.ErrNotDone {
					t.Fatalf("done before there is a peer: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			wantState(t, x.VI, via.ConnectPending)
			WantError(t, "a second request", x.VI.ConnectPeer(ctx, at(p.B, c.there), []byte(c.here)), via.ErrInvalidState)
			WantError(t, "destroy", x.VI.Destroy(ctx), via.ErrInvalidState)
			WantError(t, "set attributes", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
			_, err := x.VI.ConnectRequest(ctx, at(p.B, c.there), nil)
			WantError(t, "a client's request", err, via.ErrInvalidState)
			OK(t, y.VI.ConnectPeer(ctx, at(p.A, c.here), []byte(c.there)))
			// One of them waits, the other one looks now and then.
			r := Must(y.VI.ConnectPeerWait(ctx))(t)
			if r.MAC != p.A.Query().Address || r.VI != x.VI.Number() {
				t.Errorf("connected with %+v", r)
			}
			p.Until(t, "the other peer", func() bool {
				r, err = x.VI.ConnectPeerDone()
				return err != via.ErrNotDone
			})
			if err != nil || r.MAC != p.B.Query().Address || r.VI != y.VI.Number() {
				t.Errorf("connected with %+v, %v", r, err)
			}
			exchange(t, p, x, y, 5000, 1)
			exchange(t, p, y, x, 5000, 2)
			WantError(t, "a request while connected", x.VI.ConnectPeer(ctx, at(p.B, c.there), []byte(c.here)), via.ErrInvalidState)
		})
	}
}

// testPeersFail has attempts end in all other ways.
func testPeersFail(t T, p *Pair) {
	ctx := Context(t)
	var none context.Context
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	_, err := x.VI.ConnectPeerDone()
	WantError(t, "done before a request", err, via.ErrInvalidState)
	_, err = x.VI.ConnectPeerWait(ctx)
	WantError(t, "wait before a request", err, via.ErrInvalidState)
	long := make([]byte, via.MaxDiscriminator+1)
	over, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	for what, err := range map[string]error{
		"no context":         x.VI.ConnectPeer(none, at(p.B, "y"), []byte("x")),
		"no time":            x.VI.ConnectPeer(over, at(p.B, "y"), []byte("x")),
		"long name there":    x.VI.ConnectPeer(ctx, via.Address{MAC: p.B.Query().Address, Discriminator: long}, nil),
		"long name here":     x.VI.ConnectPeer(ctx, at(p.B, "y"), long),
		"with itself":        x.VI.ConnectPeer(ctx, at(p.A, "x"), []byte("x")),
		"with everybody":     x.VI.ConnectPeer(ctx, via.Address{MAC: via.MAC{255, 255, 255, 255, 255, 255}}, nil),
		"with another group": x.VI.ConnectPeer(ctx, via.Address{MAC: via.MAC{1}}, nil),
	} {
		WantError(t, what, err, via.ErrInvalidParameter)
	}
	wantState(t, x.VI, via.Idle)

	// Whichever side has the lower address: a time that ends, a cancelled context, and
	// Disconnect end the attempt, and the VI is idle again.
	for _, e := range []struct{ me, other *End }{{x, y}, {y, x}} {
		to := at(e.other.NIC, "nobody")
		brief, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		OK(t, e.me.VI.ConnectPeer(brief, to, []byte("lonely")))
		_, err := e.me.VI.ConnectPeerWait(ctx)
		WantError(t, "nobody in time", err, via.ErrTimeout, context.DeadlineExceeded)
		wantState(t, e.me.VI, via.Idle)
		_, err = e.me.VI.ConnectPeerDone()
		WantError(t, "nobody in time, again", err, via.ErrTimeout)

		canceled, stop := context.WithCancel(ctx)
		OK(t, e.me.VI.ConnectPeer(canceled, to, []byte("lonely")))
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err = e.me.VI.ConnectPeerWait(short)
		WantError(t, "a wait that ends before", err, via.ErrTimeout)
		wantState(t, e.me.VI, via.ConnectPending)
		stop()
		_, err = e.me.VI.ConnectPeerWait(ctx)
		WantError(t, "cancelled", err, via.ErrCanceled, context.Canceled)

		OK(t, e.me.VI.ConnectPeer(ctx, to, []byte("lonely")))
		OK(t, e.me.VI.Disconnect(ctx))
		wantState(t, e.me.VI, via.Idle)
		_, err = e.me.VI.ConnectPeerDone()
		if err == nil || err == via.ErrNotDone {
			t.Errorf("disconnected: %v", err)
		}
	}

	// A client is no peer, and finds nobody.
	OK(t, x.VI.ConnectPeer(ctx, at(p.B, "y"), []byte("x")))
	_, err = y.VI.ConnectRequest(ctx, at(p.A, "x"), []byte("y"))
	WantError(t, "a client that asks for a peer", err, via.ErrNoMatch)
	// Nor is a peer of another.
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	OK(t, y.VI.ConnectPeer(brief, at(p.A, "x"), []byte("z")))
	_, err = y.VI.ConnectPeerWait(ctx)
	WantError(t, "a peer with another name", err, via.ErrTimeout)

	// Peers that do not fit: both learn it.
	OK(t, y.VI.SetAttributes(ctx, via.VIAttributes{MaxTransfer: 4000}))
	OK(t, y.VI.ConnectPeer(ctx, at(p.A, "x"), []byte("y")))
	_, errX := x.VI.ConnectPeerWait(ctx)
	_, errY := y.VI.ConnectPeerWait(ctx)
	if !(errors.Is(errX, via.ErrInvalidMTU) && errors.Is(errY, via.ErrReject) || errors.Is(errY, via.ErrInvalidMTU) && errors.Is(errX, via.ErrReject)) {
		t.Errorf("peers of different transfer size: %v and %v", errX, errY)
	}
	wantState(t, x.VI, via.Idle)
	wantState(t, y.VI, via.Idle)

	// Closing ends it.
	OK(t, x.VI.ConnectPeer(ctx, at(p.B, "y"), []byte("x")))
	OK(t, p.A.Close())
	_, err = x.VI.ConnectPeerDone()
	WantError(t, "closed", err, via.ErrClosed)
	WantError(t, "connect peer on a closed NIC", x.VI.ConnectPeer(ctx, at(p.B, "y"), []byte("x")), via.ErrClosed)
}
