package conform

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// dial has client ask server's NIC for a connection, and returns the request as
// the server sees it and a channel for the client's outcome.
func dial(ctx context.Context, t T, client *via.VI, server *via.NIC) (*via.Connection, <-chan error) {
	t.Helper()
	const local = "conform"
	var attempt atomic.Uint32
	name := func(n uint32) string { return fmt.Sprintf("client %d", n) }
	outcome := make(chan error, 1)
	go func() {
		for {
			_, err := client.ConnectRequest(ctx, via.Address{MAC: server.Query().Address, Discriminator: local}, name(attempt.Add(1)))
			if !errors.Is(err, via.ErrNoMatch) {
				outcome <- err
				return
			}
			runtime.Gosched()
		}
	}()
	for {
		c := Must(server.ConnectWait(ctx, local))(t)
		if c.Discriminator == name(attempt.Load()) {
			return c, outcome
		}
		// It is a late copy of a request that was answered by ErrNoMatch.
		if err := c.Reject(ctx); err != nil {
			wantError(t, "reject a late copy", err, via.ErrWithdrawn)
		}
	}
}

func testMismatch(w *World) {
	ctx := Context(w)
	client := NewEnd(w, w.A, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	c, outcome := dial(ctx, w, client.VI, w.B)
	if c.Remote.MAC != w.A.Query().Address || c.Remote.MaxTransfer != 10000 || c.Remote.Reliability != via.ReliableDelivery {
		w.Errorf("request from %+v", c.Remote)
	}
	if !strings.HasPrefix(c.Discriminator, "client ") {
		w.Errorf("the client calls itself %q", c.Discriminator)
	}
	refused := []struct {
		name string
		a    via.VIAttributes
		want error
	}{
		{"reliability", via.VIAttributes{MaxTransfer: 10000, Reliability: via.Unreliable}, via.ErrInvalidReliability},
		{"smaller transfers", via.VIAttributes{MaxTransfer: 9999}, via.ErrInvalidMTU},
		{"larger transfers", via.VIAttributes{MaxTransfer: 10001}, via.ErrInvalidMTU},
	}
	for _, r := range refused {
		vi := Must(w.B.CreateVI(ctx, r.a, nil, nil))(w)
		_, err := c.Accept(ctx, vi)
		wantError(w, r.name, err, r.want)
		wantState(w, vi, via.Idle)
		OK(w, vi.Close(ctx))
	}
	select {
	case err := <-outcome:
		w.Fatalf("the client was told: %v", err)
	default:
	}
	server := NewEnd(w, w.B, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	r := Must(c.Accept(ctx, server.VI))(w)
	OK(w, <-outcome)
	if r.MAC != w.A.Query().Address || r.VI != client.VI.Number() {
		w.Errorf("connected with %+v", r)
	}
	exchange(w, client, server, 10000, 1)

	// A connected VI cannot be connected again, and the request survives that too.
	other := NewEnd(w, w.A, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	c, outcome = dial(ctx, w, other.VI, w.B)
	_, err := c.Accept(ctx, server.VI)
	wantError(w, "accept with a connected VI", err, via.ErrInvalidState)
	OK(w, c.Reject(ctx))
	wantError(w, "client", <-outcome, via.ErrReject)
}

func testReject(w *World) {
	ctx := Context(w)
	x := NewEnd(w, w.A, Setup{})
	c, outcome := dial(ctx, w, x.VI, w.B)
	OK(w, c.Reject(ctx))
	wantError(w, "client", <-outcome, via.ErrReject)
	wantState(w, x.VI, via.Idle)
	y := NewEnd(w, w.B, Setup{})
	OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
	exchange(w, x, y, 100, 1)
}

func testAnsweredOnce(w *World) {
	ctx := Context(w)
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	c, outcome := dial(ctx, w, x.VI, w.B)
	Must(c.Accept(ctx, y.VI))(w)
	OK(w, <-outcome)
	_, err := c.Accept(ctx, y.VI)
	wantError(w, "second accept", err, via.ErrInvalidParameter)
	wantError(w, "reject after accept", c.Reject(ctx), via.ErrInvalidParameter)
	_, err = x.VI.ConnectRequest(ctx, via.Address{MAC: w.B.Query().Address}, "")
	wantError(w, "connect a connected VI", err, via.ErrInvalidState)
	exchange(w, x, y, 100, 1)
}

// testAnsweredTooLate answers clients that have given up.
func testAnsweredTooLate(w *World) {
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	for name, answer := range map[string]func(*via.Connection) error{
		"accept": func(c *via.Connection) error { _, err := c.Accept(Context(w), y.VI); return err },
		"reject": func(c *via.Connection) error { return c.Reject(Context(w)) },
	} {
		ctx, cancel := context.WithCancel(Context(w))
		c, outcome := dial(ctx, w, x.VI, w.B)
		cancel()
		wantError(w, "client", <-outcome, via.ErrCanceled)
		// The news may still be under way when a request is rejected.
		if err := answer(c); err != nil || name == "accept" {
			wantError(w, name, err, via.ErrWithdrawn)
		}
	}
	wantState(w, y.VI, via.Idle)
	OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
	exchange(w, x, y, 100, 1)
}

func testConnectTime(w *World) {
	x := NewEnd(w, w.A, Setup{})
	to := via.Address{MAC: w.B.Query().Address, Discriminator: "nobody"}

	none, cancel := context.WithDeadline(w.Context(), time.Now())
	defer cancel()
	_, err := x.VI.ConnectRequest(none, to, "")
	wantError(w, "no time", err, via.ErrInvalidParameter, context.DeadlineExceeded)
	_, err = w.B.ConnectWait(none, "nobody")
	wantError(w, "no time to wait", err, via.ErrTimeout, context.DeadlineExceeded)

	canceled, cancel := context.WithCancel(w.Context())
	cancel()
	_, err = x.VI.ConnectRequest(canceled, to, "")
	wantError(w, "cancelled before", err, via.ErrCanceled, context.Canceled)

	for _, wait := range []struct {
		name string
		f    func(ctx context.Context) error
	}{
		{"server", func(ctx context.Context) error { _, err := w.B.ConnectWait(ctx, "waiting"); return err }},
		// The server sees this request, and does not answer it.
		{"client", func(ctx context.Context) error {
			go func() { _, _ = w.B.ConnectWait(Context(w), "unanswered") }()
			_, err := Request(ctx, x.VI, via.Address{MAC: to.MAC, Discriminator: "unanswered"})
			return err
		}},
	} {
		// On a busy machine a short time may be over before anything was asked.
		for short := 30 * time.Millisecond; ; short *= 10 {
			limited, cancel := context.WithTimeout(w.Context(), short)
			err := wait.f(limited)
			cancel()
			if errors.Is(err, via.ErrTimeout) || short > Timeout/2 {
				wantError(w, wait.name+" timeout", err, via.ErrTimeout, context.DeadlineExceeded)
				break
			}
		}
		canceled, cancel := context.WithCancel(w.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		wantError(w, wait.name+" cancelled", wait.f(canceled), via.ErrCanceled, context.Canceled)
		cancel()
	}
	wantState(w, x.VI, via.Idle)
	y := NewEnd(w, w.B, Setup{})
	OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
	exchange(w, x, y, 100, 1)
}

func testConnectArguments(w *World) {
	ctx := Context(w)
	x := NewEnd(w, w.A, Setup{})
	long := strings.Repeat("x", via.MaxDiscriminator+1)
	mac := w.B.Query().Address
	_, err := x.VI.ConnectRequest(ctx, via.Address{MAC: mac, Discriminator: long}, "")
	wantError(w, "long remote discriminator", err, via.ErrInvalidParameter)
	_, err = x.VI.ConnectRequest(ctx, via.Address{MAC: mac}, long)
	wantError(w, "long local discriminator", err, via.ErrInvalidParameter)
	_, err = w.A.ConnectWait(ctx, long)
	wantError(w, "wait with a long discriminator", err, via.ErrInvalidParameter)
	wantState(w, x.VI, via.Idle)

	// The longest and the empty discriminator work and are told apart.
	for _, d := range []string{long[:via.MaxDiscriminator], ""} {
		y := NewEnd(w, w.B, Setup{})
		OK(w, ConnectVIs(ctx, x.VI, y.VI, d))
		exchange(w, x, y, 10, 1)
		OK(w, x.VI.Disconnect(ctx))
	}
}
