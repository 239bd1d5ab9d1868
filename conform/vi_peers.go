package conform

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// at is the address of a NIC's connection point.
func at(n *via.NIC, name string) via.Address {
	return via.Address{MAC: n.Query().Address, Discriminator: name}
}

// testPeers connects VIs that both ask.
func testPeers(w *World) {
	ctx := Context(w)
	for name, c := range map[string]struct{ here, there string }{
		"other names": {"left", "right"}, "the same name": {"peers", "peers"}, "no names": {"", ""}, "swapped": {"right", "left"},
	} {
		w.part(name, func(w *World) {
			x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
			OK(w, x.VI.ConnectPeer(ctx, at(w.B, c.there), c.here))
			// The other one comes late.
			for range 20 {
				if _, err := x.VI.ConnectPeerDone(); err != via.ErrNotDone {
					w.Fatalf("done before there is a peer: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			wantState(w, x.VI, via.ConnectPending)
			wantError(w, "a second request", x.VI.ConnectPeer(ctx, at(w.B, c.there), c.here), via.ErrInvalidState)
			wantError(w, "destroy", x.VI.Close(ctx), via.ErrInvalidState)
			wantError(w, "set attributes", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
			_, err := x.VI.ConnectRequest(ctx, at(w.B, c.there), "")
			wantError(w, "a client's request", err, via.ErrInvalidState)
			OK(w, y.VI.ConnectPeer(ctx, at(w.A, c.here), c.there))
			// One of them waits, the other one looks now and then.
			r := Must(y.VI.ConnectPeerWait(ctx))(w)
			if r.MAC != w.A.Query().Address || r.VI != x.VI.Number() {
				w.Errorf("connected with %+v", r)
			}
			w.Until("the other peer", func() bool {
				r, err = x.VI.ConnectPeerDone()
				return err != via.ErrNotDone
			})
			if err != nil || r.MAC != w.B.Query().Address || r.VI != y.VI.Number() {
				w.Errorf("connected with %+v, %v", r, err)
			}
			exchange(w, x, y, 5000, 1)
			exchange(w, y, x, 5000, 2)
			wantError(w, "a request while connected", x.VI.ConnectPeer(ctx, at(w.B, c.there), c.here), via.ErrInvalidState)
		})
	}
}

// connectBriefly begins an attempt to connect with a peer that has little time. On a busy machine
// a short time may be over before anything was asked.
func connectBriefly(t T, v *via.VI, to via.Address, name string) {
	t.Helper()
	for short := 30 * time.Millisecond; ; short *= 10 {
		brief, cancel := context.WithTimeout(t.Context(), short)
		t.Cleanup(cancel)
		err := v.ConnectPeer(brief, to, name)
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || short > Timeout/2 {
			t.Fatal(err)
		}
	}
}

// testPeersFail has attempts end in all other ways.
func testPeersFail(w *World) {
	ctx := Context(w)
	var none context.Context
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	_, err := x.VI.ConnectPeerDone()
	wantError(w, "done before a request", err, via.ErrInvalidState)
	_, err = x.VI.ConnectPeerWait(ctx)
	wantError(w, "wait before a request", err, via.ErrInvalidState)
	long := strings.Repeat("x", via.MaxDiscriminator+1)
	over, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	for what, err := range map[string]error{
		"no context":         x.VI.ConnectPeer(none, at(w.B, "y"), "x"),
		"no time":            x.VI.ConnectPeer(over, at(w.B, "y"), "x"),
		"long name there":    x.VI.ConnectPeer(ctx, via.Address{MAC: w.B.Query().Address, Discriminator: long}, ""),
		"long name here":     x.VI.ConnectPeer(ctx, at(w.B, "y"), long),
		"with itself":        x.VI.ConnectPeer(ctx, at(w.A, "x"), "x"),
		"with all":           x.VI.ConnectPeer(ctx, via.Address{MAC: via.MAC{255, 255, 255, 255, 255, 255}}, ""),
		"with another group": x.VI.ConnectPeer(ctx, via.Address{MAC: via.MAC{1}}, ""),
	} {
		wantError(w, what, err, via.ErrInvalidParameter)
	}
	wantState(w, x.VI, via.Idle)

	// Whichever side has the lower address: a time that ends, a cancelled context, and
	// Disconnect end the attempt, and the VI is idle again.
	for _, e := range []struct{ me, other *End }{{x, y}, {y, x}} {
		to := at(e.other.NIC, "nobody")
		connectBriefly(w, e.me.VI, to, "lonely")
		_, err := e.me.VI.ConnectPeerWait(ctx)
		wantError(w, "no peer in time", err, via.ErrTimeout, context.DeadlineExceeded)
		wantState(w, e.me.VI, via.Idle)
		_, err = e.me.VI.ConnectPeerDone()
		wantError(w, "no peer in time, again", err, via.ErrTimeout)

		canceled, stop := context.WithCancel(ctx)
		OK(w, e.me.VI.ConnectPeer(canceled, to, "lonely"))
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err = e.me.VI.ConnectPeerWait(short)
		wantError(w, "a wait that ends before", err, via.ErrTimeout)
		wantState(w, e.me.VI, via.ConnectPending)
		stop()
		_, err = e.me.VI.ConnectPeerWait(ctx)
		wantError(w, "cancelled", err, via.ErrCanceled, context.Canceled)

		OK(w, e.me.VI.ConnectPeer(ctx, to, "lonely"))
		OK(w, e.me.VI.Disconnect(ctx))
		wantState(w, e.me.VI, via.Idle)
		_, err = e.me.VI.ConnectPeerDone()
		if err == nil || err == via.ErrNotDone {
			w.Errorf("disconnected: %v", err)
		}
	}

	// A client is no peer, and finds none.
	OK(w, x.VI.ConnectPeer(ctx, at(w.B, "y"), "x"))
	_, err = y.VI.ConnectRequest(ctx, at(w.A, "x"), "y")
	wantError(w, "a client that asks for a peer", err, via.ErrNoMatch)
	// Nor is a peer of another.
	connectBriefly(w, y.VI, at(w.A, "x"), "z")
	_, err = y.VI.ConnectPeerWait(ctx)
	wantError(w, "a peer with another name", err, via.ErrTimeout)

	// Peers that do not fit: both learn it.
	OK(w, y.VI.SetAttributes(ctx, via.VIAttributes{MaxTransfer: 4000}))
	OK(w, y.VI.ConnectPeer(ctx, at(w.A, "x"), "y"))
	_, errX := x.VI.ConnectPeerWait(ctx)
	_, errY := y.VI.ConnectPeerWait(ctx)
	if !(errors.Is(errX, via.ErrInvalidMTU) && errors.Is(errY, via.ErrReject) || errors.Is(errY, via.ErrInvalidMTU) && errors.Is(errX, via.ErrReject)) {
		w.Errorf("peers of different transfer size: %v and %v", errX, errY)
	}
	wantState(w, x.VI, via.Idle)
	wantState(w, y.VI, via.Idle)

	// Closing ends it.
	OK(w, x.VI.ConnectPeer(ctx, at(w.B, "y"), "x"))
	OK(w, w.A.Close())
	_, err = x.VI.ConnectPeerDone()
	wantError(w, "closed", err, via.ErrClosed)
	wantError(w, "connect peer on a closed NIC", x.VI.ConnectPeer(ctx, at(w.B, "y"), "x"), via.ErrClosed)
}
