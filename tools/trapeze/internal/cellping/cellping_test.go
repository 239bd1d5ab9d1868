package cellping_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellping"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout ends a test that waits in vain, also on a busy machine.
const timeout = time.Minute

func contextFor(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// pair opens a pair of channels over two NICs.
func pair(t *testing.T) (x, y *channel.Channel) {
	t.Helper()
	ctx := contextFor(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second, err := emulator.Pair(emulator.PairOptions{})
	must(err)
	a, err := via.OpenDevice(ctx, first, via.Options{})
	must(err)
	b, err := via.OpenDevice(ctx, second, via.Options{})
	must(err)
	t.Cleanup(func() { _ = errors.Join(a.Close(), b.Close()) })
	l, err := channel.Listen(b, "ping", channel.Options{})
	must(err)
	x, err = channel.Dial(ctx, a, l.Address().String(), channel.Options{})
	must(err)
	y, err = l.Accept(ctx)
	must(err)
	must(l.Close())
	return x, y
}

// TestBounce has messages of many sizes come back.
func TestBounce(t *testing.T) {
	const rounds = 10
	x, y := pair(t)
	ctx := contextFor(t)
	for _, size := range []int{8, 40, 48, 4096, 8104, cellping.MaxSize} {
		echoed := make(chan error, 1)
		go func() { echoed <- cellping.Echo(ctx, y, channel.High, rounds) }()
		took, err := cellping.Bounce(ctx, x, channel.High, size, rounds)
		if err := errors.Join(err, <-echoed); err != nil || len(took) != rounds {
			t.Fatalf("%d bytes: %d rounds, %v", size, len(took), err)
		}
		for _, d := range took {
			if d <= 0 {
				t.Errorf("a round trip of %v", d)
			}
		}
	}
}

// TestRefusals: sizes and rounds out of range, and a context that ends.
func TestRefusals(t *testing.T) {
	x, y := pair(t)
	ctx := contextFor(t)
	for _, size := range []int{-8, 0, 7, cellping.MaxSize + 8, 8192} {
		if _, err := cellping.Bounce(ctx, x, channel.High, size, 1); !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := cellping.Bounce(ctx, x, channel.High, 40, -1); !errors.Is(err, via.ErrInvalidParameter) {
		t.Errorf("less than no rounds: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := cellping.Echo(short, y, channel.High, -1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no message comes: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cellping.Bounce(ctx, x, channel.High, 8, 1); !errors.Is(err, via.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := cellping.Echo(ctx, x, channel.High, 1); !errors.Is(err, via.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestInterrupted: the end of the context ends both also while messages are there already.
func TestInterrupted(t *testing.T) {
	x, y := pair(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if err := x.Send(channel.High, 0, 5); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Flush(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if err := cellping.Echo(over, y, channel.High, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("echo: %v", err)
	}
	took, err := cellping.Bounce(over, y, channel.High, 40, 3)
	if !errors.Is(err, context.Canceled) || len(took) != 0 {
		t.Errorf("bounce: %d rounds, %v", len(took), err)
	}
	if sent, err := y.Sent(channel.High); err != nil || sent.Taken != 0 {
		t.Errorf("%d messages after the end, %v", sent.Taken, err)
	}
}
