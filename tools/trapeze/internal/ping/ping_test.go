package ping_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/ping"
	"github.com/trapeze-nic/trapeze/via"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nics opens two NICs on one wire with the given further options.
func nics(t *testing.T, options string) (a, b *via.NIC) {
	t.Helper()
	address := "emu:?wire=mem:" + rand.Text() + options
	var out []*via.NIC
	for range 2 {
		n := must.Get(via.Open(t.Context(), address, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() { n.Close() })
		out = append(out, n)
	}
	return out[0], out[1]
}

// serve answers on nic until the test ends and returns who came.
func serve(t *testing.T, nic *via.NIC) <-chan ping.Client {
	return serveFor(t, nic, 0)
}

// serveFor gives up unreliable clients that have sent nothing for the idle time.
func serveFor(t *testing.T, nic *via.NIC, idle time.Duration) <-chan ping.Client {
	return serveOn(t, ping.Server{NIC: nic, IdleTimeout: idle})
}

func serveOn(t *testing.T, s ping.Server) <-chan ping.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	clients, done := make(chan ping.Client, 100), make(chan error, 1)
	s.Ended = func(c ping.Client) { clients <- c }
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		should.OK(t, <-done, "server")
	})
	return clients
}

func dial(t *testing.T, a *via.NIC, to via.MAC, level via.Reliability, n int) *via.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return must.Get(dialWith(ctx, a, to, ping.ConnOptions(level, n)))(t)
}

func dialWith(ctx context.Context, a *via.NIC, to via.MAC, o via.ConnOptions) (*via.Conn, error) {
	return via.Dial(ctx, a, via.Address{MAC: to, Discriminator: ping.Discriminator}.String(), o)
}

// TestLoss checks that what a bad wire eats shows on an unreliable VI, and does
// not on a reliable one.
func TestLoss(t *testing.T) {
	a, b := nics(t, "&loss=0.3&seed=7")
	serve(t, b)
	for level, lossy := range map[via.Reliability]bool{via.Unreliable: true, via.ReliableDelivery: false} {
		e := dial(t, a, b.Query().Address, level, 64)
		wait := 10 * time.Second
		if lossy {
			wait = 20 * time.Millisecond
		}
		s := must.Get(ping.Run(t.Context(), e, ping.Options{Count: 60, Bytes: 64, Wait: wait}, nil))(t)
		should.Hold(t, s.Sent == 60 && (s.Lost > 0) == lossy && s.Received != 0, "%v: %d of %d lost", level, s.Lost, s.Sent)
		should.OK(t, e.Close())
	}
}

// TestServerEnds: a client is told that the server has gone.
func TestServerEnds(t *testing.T) {
	a, b := nics(t, "")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ping.Server{NIC: b}.Serve(ctx) }()
	e := dial(t, a, b.Query().Address, via.ReliableDelivery, 64)
	defer e.Close()
	s, err := ping.Run(t.Context(), e, ping.Options{Bytes: 64, Wait: 10 * time.Second}, func(seq uint64, _ time.Duration, _ bool) {
		if seq == 4 {
			stop()
		}
	})
	should.Hold(t, errors.Is(err, transfer.ErrPeerLost) && s.Sent >= 5, "%+v, %v", s, err)
	should.OK(t, <-done)
}

// TestVanishedClients fills a server with unreliable clients that end without a
// word. It gives them up, and serves the next.
func TestVanishedClients(t *testing.T) {
	const places = 64
	a, b := nics(t, "")
	clients := serveFor(t, b, 500*time.Millisecond)
	for range places {
		dial(t, a, b.Query().Address, via.Unreliable, 1000)
	}
	for range places {
		c := <-clients
		should.Hold(t, c.Err != nil && c.Echoed == 0, "server says %+v", c)
	}
	e := dial(t, a, b.Query().Address, via.ReliableDelivery, 64)
	s, err := ping.Run(t.Context(), e, ping.Options{Count: 3, Bytes: 64, Wait: 10 * time.Second}, nil)
	should.Hold(t, err == nil && s.Received == 3, "%+v, %v", s, err)
	should.OK(t, e.Close())
}

// TestPatientClient asks less often than a server's idle timeout.
func TestPatientClient(t *testing.T) {
	t.Parallel()
	a, b := nics(t, "")
	clients := serveFor(t, b, 3*time.Second)
	e := dial(t, a, b.Query().Address, via.Unreliable, 64)
	s, err := ping.Run(t.Context(), e, ping.Options{Count: 2, Bytes: 64, Wait: 10 * time.Second, Interval: 4 * time.Second}, nil)
	should.Hold(t, err == nil && s.Received == 2 && s.Late == 0, "%+v, %v", s, err)
	should.OK(t, e.Close())
	c := <-clients
	should.Hold(t, c.Err == nil && c.Echoed == 2, "server says %+v", c)
}

// TestWaitingClient waits long for an answer that does not come: it says that it is
// still there.
func TestWaitingClient(t *testing.T) {
	t.Parallel()
	a, b := nics(t, "")
	l := must.Get(via.Listen(b, ping.Discriminator, via.ListenOptions{Conn: func(via.Remote) (via.ConnOptions, error) { return ping.ConnOptions(via.Unreliable, 64), nil }}))(t)
	heard := make(chan bool, 100) // whether it was a question
	go func() {
		defer close(heard)
		server, err := l.Accept(t.Context())
		if err = errors.Join(err, l.Close()); err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		for {
			m, err := server.Receive(t.Context())
			if err != nil {
				return
			}
			heard <- len(m) > 0
			should.OK(t, server.Release())
		}
	}()
	e := dial(t, a, b.Query().Address, via.Unreliable, 64)
	s, err := ping.Run(t.Context(), e, ping.Options{Count: 1, Bytes: 64, Wait: 2500 * time.Millisecond}, nil)
	should.Hold(t, err == nil && s.Lost == 1, "%+v, %v", s, err)
	should.OK(t, e.Close())
	var asks, others int
	for asked := range heard {
		if asked {
			asks++
		} else {
			others++
		}
	}
	should.Hold(t, asks == 1 && others >= 1, "the server has heard %d questions and %d other messages", asks, others)
}

// TestGreedyClients asks for more memory than the server has for all.
func TestGreedyClients(t *testing.T) {
	const n, few = 10_000, 3
	a, b := nics(t, "")
	serveOn(t, ping.Server{NIC: b, Memory: few * 2 * ping.Depth * n})
	var rejected error
	var ends []*via.Conn
	for i := 0; rejected == nil && i < 64; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var e *via.Conn
		e, rejected = dialWith(ctx, a, b.Query().Address, via.ConnOptions{MaxMessage: n, SendDepth: 1, RecvDepth: 1})
		cancel()
		if e != nil {
			ends = append(ends, e)
		}
	}
	should.Hold(t, errors.Is(rejected, via.ErrReject) && len(ends) == few, "%d clients, then %v", len(ends), rejected)
	for _, e := range ends {
		should.OK(t, e.Close())
	}
	// What they had is free again, once the server has heard of it.
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		e, err := dialWith(ctx, a, b.Query().Address, via.ConnOptions{MaxMessage: n, SendDepth: 1, RecvDepth: 1})
		cancel()
		if e != nil {
			err = e.Close()
		}
		if err == nil {
			break
		}
		must.Hold(t, errors.Is(err, via.ErrReject), "%+v", err)
	}
}
