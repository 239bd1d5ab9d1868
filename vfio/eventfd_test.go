package vfio_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func newEventfd(t *testing.T) *vfio.Eventfd {
	t.Helper()
	e := must.Get(vfio.NewEventfd())(t)
	t.Cleanup(func() { should.OK(t, e.Close()) })
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
	must.Hold(t, err == nil || errors.Is(err, unix.EAGAIN), "%v", err)
	return err == nil
}

func TestEventfdSignalBeforeWait(t *testing.T) {
	e := newEventfd(t)
	for range 3 {
		must.OK(t, e.Signal())
	}
	must.OK(t, e.Wait(limited(t)))
	should.Hold(t, !isSignalled(t, e), "three signals did not count as one")
}

func TestEventfdSignalDuringWait(t *testing.T) {
	e := newEventfd(t)
	done := make(chan error)
	for range 100 {
		go func() { done <- e.Wait(limited(t)) }()
		// As a device does: a write of 8 bytes to the descriptor.
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		must.Get(unix.Write(e.FD(), one[:]))(t)
		must.OK(t, <-done)
	}
}

func TestEventfdSignalSaturated(t *testing.T) {
	e := newEventfd(t)
	var most [8]byte
	binary.NativeEndian.PutUint64(most[:], 1<<64-2)
	must.Get(unix.Write(e.FD(), most[:]))(t)
	should.OK(t, e.Signal())
	should.OK(t, e.Wait(limited(t)))
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
				must.Hold(t, errors.Is(err, tt.want), "got %v, want %v", err, tt.want)
				// An interrupted wait leaves the next one alone.
				must.OK(t, e.Signal())
				must.OK(t, e.Wait(limited(t)))
			}
		})
	}
}

func TestEventfdContextOverTakesNothing(t *testing.T) {
	e := newEventfd(t)
	must.OK(t, e.Signal())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	should.Fail(t, e.Wait(ctx), context.Canceled)
	should.Hold(t, isSignalled(t, e), "the signal is gone")
}

func TestEventfdDrain(t *testing.T) {
	e := newEventfd(t)
	for _, signals := range []int{0, 1, 5} {
		for range signals {
			must.OK(t, e.Signal())
		}
		must.OK(t, e.Drain())
		should.Hold(t, !isSignalled(t, e), "still signalled after %d signals and a drain", signals)
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
				should.OK(t, e.Signal())
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	for range waiters {
		must.OK(t, e.Signal())
		must.OK(t, <-woken)
	}
	quitters.Wait()
}

func TestEventfdCloseWakesWaiters(t *testing.T) {
	checkLeaks(t)
	for range 50 {
		e := must.Get(vfio.NewEventfd())(t)
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				should.Fail(t, e.Wait(limited(t)), vfio.ErrClosed, "wait")
			})
		}
		must.OK(t, e.Close())
		waiters.Wait()
	}
}

func TestEventfdAfterClose(t *testing.T) {
	checkLeaks(t)
	e := must.Get(vfio.NewEventfd())(t)
	for i := range 2 {
		err := e.Close()
		should.Hold(t, err == nil, "Close %d: %v", i, err)
	}
	for name, f := range map[string]func() error{
		"Signal": e.Signal,
		"Drain":  e.Drain,
		"Wait":   func() error { return e.Wait(limited(t)) },
	} {
		should.Fail(t, f(), vfio.ErrClosed, "%s", name)
	}
	should.Be(t, e.FD(), -1, "FD")
}
