package vfio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

func newEventfd(t *testing.T) *vfio.Eventfd {
	t.Helper()
	e, err := vfio.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// limited is a context for waits that should not end by it.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// isSignalled takes the signal, if there is one.
func isSignalled(t *testing.T, e *vfio.Eventfd) bool {
	t.Helper()
	var b [8]byte
	_, err := unix.Read(e.FD(), b[:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	return err == nil
}

func TestEventfdSignalBeforeWait(t *testing.T) {
	e := newEventfd(t)
	for range 3 {
		if err := e.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Wait(limited(t)); err != nil {
		t.Fatal(err)
	}
	if isSignalled(t, e) {
		t.Error("three signals did not count as one")
	}
}

func TestEventfdSignalDuringWait(t *testing.T) {
	e := newEventfd(t)
	done := make(chan error)
	for range 100 {
		go func() { done <- e.Wait(limited(t)) }()
		// As a device does: a write of 8 bytes to the descriptor.
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		if _, err := unix.Write(e.FD(), one[:]); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestEventfdSignalSaturated(t *testing.T) {
	e := newEventfd(t)
	var most [8]byte
	binary.NativeEndian.PutUint64(most[:], 1<<64-2)
	if _, err := unix.Write(e.FD(), most[:]); err != nil {
		t.Fatal(err)
	}
	if err := e.Signal(); err != nil {
		t.Errorf("signal: %v", err)
	}
	if err := e.Wait(limited(t)); err != nil {
		t.Errorf("wait: %v", err)
	}
}

func TestEventfdContext(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancelLate := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancelLate()
	tests := []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		{"already cancelled", func() (context.Context, context.CancelFunc) { return over, func() {} }, context.Canceled},
		{"deadline already over", func() (context.Context, context.CancelFunc) { return late, func() {} }, context.DeadlineExceeded},
		{"deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Millisecond)
		}, context.DeadlineExceeded},
		{"cancelled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			return ctx, cancel
		}, context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEventfd(t)
			for range 20 {
				ctx, cancel := tt.ctx()
				err := e.Wait(ctx)
				cancel()
				if !errors.Is(err, tt.want) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				// An interrupted wait leaves the next one alone.
				if err := e.Signal(); err != nil {
					t.Fatal(err)
				}
				if err := e.Wait(limited(t)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestEventfdContextOverTakesNothing(t *testing.T) {
	e := newEventfd(t)
	if err := e.Signal(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !isSignalled(t, e) {
		t.Error("the signal is gone")
	}
}

func TestEventfdDrain(t *testing.T) {
	e := newEventfd(t)
	for _, signals := range []int{0, 1, 5} {
		for range signals {
			if err := e.Signal(); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Drain(); err != nil {
			t.Fatal(err)
		}
		if isSignalled(t, e) {
			t.Errorf("still signalled after %d signals and a drain", signals)
		}
	}
}

// TestEventfdManyWaiters has as many signals as waiters, each sent when the one
// before it has been taken, while other waiters give up.
func TestEventfdManyWaiters(t *testing.T) {
	e := newEventfd(t)
	const waiters = 8
	woken := make(chan error)
	for range waiters {
		go func() { woken <- e.Wait(limited(t)) }()
	}
	var quitters sync.WaitGroup
	for range waiters {
		quitters.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			if err := e.Wait(ctx); err == nil {
				// It took a signal that was meant for another.
				if err := e.Signal(); err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	for range waiters {
		if err := e.Signal(); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}
	quitters.Wait()
}

func TestEventfdCloseWakesWaiters(t *testing.T) {
	checkLeaks(t)
	for range 50 {
		e, err := vfio.NewEventfd()
		if err != nil {
			t.Fatal(err)
		}
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				if err := e.Wait(limited(t)); !errors.Is(err, vfio.ErrClosed) {
					t.Errorf("wait: %v", err)
				}
			})
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		waiters.Wait()
	}
}

func TestEventfdAfterClose(t *testing.T) {
	checkLeaks(t)
	e, err := vfio.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := e.Close(); err != nil {
			t.Errorf("Close %d: %v", i, err)
		}
	}
	for name, f := range map[string]func() error{
		"Signal": e.Signal,
		"Drain":  e.Drain,
		"Wait":   func() error { return e.Wait(limited(t)) },
	} {
		if err := f(); !errors.Is(err, vfio.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e.FD() != -1 {
		t.Errorf("FD() = %d", e.FD())
	}
}
