package ping_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/ping"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/transfer"
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
		n, err := via.Open(t.Context(), address, via.WithErrorHandler(func(via.AsyncError) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		out = append(out, n)
	}
	return out[0], out[1]
}

// serve answers on nic until the test ends and returns who came.
func serve(t *testing.T, nic *via.NIC) <-chan ping.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	clients, done := make(chan ping.Client, 16), make(chan error, 1)
	go func() { done <- ping.Serve(ctx, nic, func(c ping.Client) { clients <- c }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return clients
}

func dial(t *testing.T, a *via.NIC, to via.MAC, level via.Reliability, n int) *endpoint.Endpoint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	e, err := endpoint.New(ctx, a, ping.EndpointOptions(level, n))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Connect(ctx, via.Address{MAC: to, Discriminator: ping.Discriminator}, nil); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestPing(t *testing.T) {
	a, b := nics(t, "")
	clients := serve(t, b)
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		for _, n := range []int{0, 1, 64, 100_000} {
			e := dial(t, a, b.Query().Address, level, n)
			var replies uint64
			s, err := ping.Run(t.Context(), e, ping.Options{Count: 20, Bytes: n, Wait: 10 * time.Second}, func(seq uint64, d time.Duration, answered bool) {
				if seq != replies || !answered || d <= 0 {
					t.Errorf("reply %d after %d: %v, %v", seq, replies, d, answered)
				}
				replies++
			})
			if err != nil {
				t.Fatal(err)
			}
			if s.Sent != 20 || s.Received != 20 || s.Lost() != 0 || s.Loss() != 0 || s.Corrupt != 0 || replies != 20 {
				t.Errorf("%v, %d bytes: %+v", level, n, s)
			}
			if s.Min() <= 0 || s.Min() > s.Percentile(50) || s.Percentile(50) > s.Percentile(99) || s.Percentile(99) > s.Max() || s.Mean() < s.Min() || s.Mean() > s.Max() {
				t.Errorf("times %v %v %v %v %v", s.Min(), s.Mean(), s.Percentile(50), s.Percentile(99), s.Max())
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if c := <-clients; c.Echoed != 20 || c.Err != nil || c.Remote.MAC != a.Query().Address {
				t.Errorf("server says %+v", c)
			}
		}
	}
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
		s, err := ping.Run(t.Context(), e, ping.Options{Count: 60, Bytes: 64, Wait: wait}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Sent != 60 || (s.Lost() > 0) != lossy || s.Received == 0 {
			t.Errorf("%v: %d of %d lost", level, s.Lost(), s.Sent)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEnds(t *testing.T) {
	a, b := nics(t, "")
	t.Run("when told to", func(t *testing.T) {
		serve(t, b)
		e := dial(t, a, b.Query().Address, via.ReliableDelivery, 64)
		defer e.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := ping.Run(ctx, e, ping.Options{Bytes: 64, Wait: time.Second, Interval: time.Millisecond}, func(seq uint64, _ time.Duration, _ bool) {
			if seq == 4 {
				cancel()
			}
		})
		if err != nil || s.Sent != 5 || s.Lost() != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("when the server does", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ping.Serve(ctx, b, nil) }()
		e := dial(t, a, b.Query().Address, via.ReliableDelivery, 64)
		defer e.Close()
		s, err := ping.Run(t.Context(), e, ping.Options{Bytes: 64, Wait: 10 * time.Second}, func(seq uint64, _ time.Duration, _ bool) {
			if seq == 4 {
				stop()
			}
		})
		if !errors.Is(err, transfer.ErrPeerLost) || s.Sent < 5 {
			t.Errorf("%+v, %v", s, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("at once on a closed NIC", func(t *testing.T) {
		n, _ := nics(t, "")
		n.Close()
		if err := ping.Serve(t.Context(), n, nil); !errors.Is(err, via.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
