package viatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// dial has client ask server's NIC for a connection, and returns the request as
// the server sees it and a channel for the client's outcome.
func dial(ctx context.Context, t T, client *via.VI, server *via.NIC) (*via.Connection, <-chan error) {
	t.Helper()
	local := []byte("viatest")
	var attempt atomic.Uint32
	name := func(n uint32) []byte { return fmt.Appendf(nil, "client %d", n) }
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
		if bytes.Equal(c.Discriminator, name(attempt.Load())) {
			return c, outcome
		}
		// It is a late copy of a request that was answered by ErrNoMatch.
		if err := c.Reject(ctx); err != nil {
			WantError(t, "reject a late copy", err, via.ErrWithdrawn)
		}
	}
}

func testMismatch(t T, p *Pair) {
	ctx := Context(t)
	client := NewEnd(t, p.A, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	c, outcome := dial(ctx, t, client.VI, p.B)
	if c.Remote.MAC != p.A.Query().Address || c.Remote.MaxTransfer != 10000 || c.Remote.Reliability != via.ReliableDelivery {
		t.Errorf("request from %+v", c.Remote)
	}
	if !bytes.HasPrefix(c.Discriminator, []byte("client ")) {
		t.Errorf("the client calls itself %q", c.Discriminator)
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
		vi := Must(p.B.CreateVI(ctx, r.a, nil, nil))(t)
		_, err := c.Accept(ctx, vi)
		WantError(t, r.name, err, r.want)
		wantState(t, vi, via.Idle)
		OK(t, vi.Destroy(ctx))
	}
	select {
	case err := <-outcome:
		t.Fatalf("the client was told: %v", err)
	default:
	}
	server := NewEnd(t, p.B, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	r := Must(c.Accept(ctx, server.VI))(t)
	OK(t, <-outcome)
	if r.MAC != p.A.Query().Address || r.VI != client.VI.Number() {
		t.Errorf("connected with %+v", r)
	}
	exchange(t, p, client, server, 10000, 1)

	// A connected VI cannot be connected again, and the request survives that too.
	other := NewEnd(t, p.A, Setup{Attributes: via.VIAttributes{MaxTransfer: 10000}})
	c, outcome = dial(ctx, t, other.VI, p.B)
	_, err := c.Accept(ctx, server.VI)
	WantError(t, "accept with a connected VI", err, via.ErrInvalidState)
	OK(t, c.Reject(ctx))
	WantError(t, "client", <-outcome, via.ErrReject)
}

func testReject(t T, p *Pair) {
	ctx := Context(t)
	x := NewEnd(t, p.A, Setup{})
	c, outcome := dial(ctx, t, x.VI, p.B)
	OK(t, c.Reject(ctx))
	WantError(t, "client", <-outcome, via.ErrReject)
	wantState(t, x.VI, via.Idle)
	y := NewEnd(t, p.B, Setup{})
	OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
	exchange(t, p, x, y, 100, 1)
}

func testAnsweredOnce(t T, p *Pair) {
	ctx := Context(t)
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	c, outcome := dial(ctx, t, x.VI, p.B)
	Must(c.Accept(ctx, y.VI))(t)
	OK(t, <-outcome)
	_, err := c.Accept(ctx, y.VI)
	WantError(t, "second accept", err, via.ErrInvalidParameter)
	WantError(t, "reject after accept", c.Reject(ctx), via.ErrInvalidParameter)
	_, err = x.VI.ConnectRequest(ctx, via.Address{MAC: p.B.Query().Address}, nil)
	WantError(t, "connect a connected VI", err, via.ErrInvalidState)
	exchange(t, p, x, y, 100, 1)
}

// testAnsweredTooLate answers clients that have given up.
func testAnsweredTooLate(t T, p *Pair) {
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	for name, answer := range map[string]func(*via.Connection) error{
		"accept": func(c *via.Connection) error { _, err := c.Accept(Context(t), y.VI); return err },
		"reject": func(c *via.Connection) error { return c.Reject(Context(t)) },
	} {
		ctx, cancel := context.WithCancel(Context(t))
		c, outcome := dial(ctx, t, x.VI, p.B)
		cancel()
		WantError(t, "client", <-outcome, via.ErrCanceled)
		// The news may still be under way when a request is rejected.
		if err := answer(c); err != nil || name == "accept" {
			WantError(t, name, err, via.ErrWithdrawn)
		}
	}
	wantState(t, y.VI, via.Idle)
	OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
	exchange(t, p, x, y, 100, 1)
}

func testConnectTime(t T, p *Pair) {
	x := NewEnd(t, p.A, Setup{})
	to := via.Address{MAC: p.B.Query().Address, Discriminator: []byte("nobody")}

	none, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := x.VI.ConnectRequest(none, to, nil)
	WantError(t, "no time", err, via.ErrInvalidParameter, context.DeadlineExceeded)
	_, err = p.B.ConnectWait(none, []byte("nobody"))
	WantError(t, "no time to wait", err, via.ErrTimeout, context.DeadlineExceeded)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.VI.ConnectRequest(canceled, to, nil)
	WantError(t, "cancelled before", err, via.ErrCanceled, context.Canceled)

	for _, wait := range []struct {
		name string
		f    func(ctx context.Context) error
	}{
		{"server", func(ctx context.Context) error { _, err := p.B.ConnectWait(ctx, []byte("waiting")); return err }},
		// The server sees this request, and does not answer it.
		{"client", func(ctx context.Context) error {
			go func() { _, _ = p.B.ConnectWait(Context(t), []byte("unanswered")) }()
			_, err := Request(ctx, x.VI, via.Address{MAC: to.MAC, Discriminator: []byte("unanswered")})
			return err
		}},
	} {
		// On a busy machine a short time may be over before anything was asked.
		for short := 30 * time.Millisecond; ; short *= 10 {
			limited, cancel := context.WithTimeout(t.Context(), short)
			err := wait.f(limited)
			cancel()
			if errors.Is(err, via.ErrTimeout) || short > Patience/2 {
				WantError(t, wait.name+" timeout", err, via.ErrTimeout, context.DeadlineExceeded)
				break
			}
		}
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		WantError(t, wait.name+" cancelled", wait.f(canceled), via.ErrCanceled, context.Canceled)
		cancel()
	}
	wantState(t, x.VI, via.Idle)
	y := NewEnd(t, p.B, Setup{})
	OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
	exchange(t, p, x, y, 100, 1)
}

func testConnectArguments(t T, p *Pair) {
	ctx := Context(t)
	x := NewEnd(t, p.A, Setup{})
	long := make([]byte, via.MaxDiscriminator+1)
	mac := p.B.Query().Address
	_, err := x.VI.ConnectRequest(ctx, via.Address{MAC: mac, Discriminator: long}, nil)
	WantError(t, "long remote discriminator", err, via.ErrInvalidParameter)
	_, err = x.VI.ConnectRequest(ctx, via.Address{MAC: mac}, long)
	WantError(t, "long local discriminator", err, via.ErrInvalidParameter)
	_, err = p.A.ConnectWait(ctx, long)
	WantError(t, "wait with a long discriminator", err, via.ErrInvalidParameter)
	wantState(t, x.VI, via.Idle)

	// The longest and the empty discriminator work and are told apart.
	for _, d := range [][]byte{long[:via.MaxDiscriminator], {}} {
		y := NewEnd(t, p.B, Setup{})
		OK(t, ConnectVIs(ctx, x.VI, y.VI, string(d)))
		exchange(t, p, x, y, 10, 1)
		OK(t, x.VI.Disconnect(ctx))
	}
}
