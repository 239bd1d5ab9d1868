package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/via"
)

// Wires of Idle without a NIC, both in one process: another thread wakes a thread that is blocked in read(2) of a
// pipe, or a goroutine that waits for a pipe.
const (
	idleKernel  = "kernel"
	idleRuntime = "runtime"
)

// stampSize is the size of a message: the time at which it was posted.
const stampSize = 8

// settle is the time in which a fresh process ends its own work before it is idle.
const settle = 100 * time.Millisecond

// pollEvery is the time after which an inline NIC of the sender runs again in a pause. The waiter's asks
// after a second whether its peer is there, and takes it for dead after three more.
const pollEvery = 500 * time.Millisecond

// monotonic is the time in ns of a clock that all processes share
// (clock_gettime(2), CLOCK_MONOTONIC).
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// rare is one end of a connection that carries a time stamp now and then.
type rare struct {
	// send returns when the stamp is on its way, wait when one has come.
	send func(ctx context.Context, stamp []byte) error
	wait func(ctx context.Context, stamp []byte) error
	poll func()
}

// count is the number of messages that are timed: after half of the time, in which nothing comes.
func (t *Task) count() int { return int(max(t.For/2/t.Pause, 1)) }

// wake lets the other end sleep for half of the time, and then sends it a stamp now and then.
func (p *part) wake(ctx context.Context, e rare) error {
	rest := p.For/2 + 2*settle // the other end begins within that
	for range p.count() + 1 {
		for ; rest > pollEvery; rest -= pollEvery {
			if err := pause.For(ctx, pollEvery); err != nil {
				return err
			}
			e.poll()
		}
		if err := pause.For(ctx, rest); err != nil {
			return err
		}
		if err := e.send(ctx, binary.NativeEndian.AppendUint64(nil, uint64(monotonic()))); err != nil {
			return err
		}
		rest = p.Pause
	}
	return nil
}

// sleep waits for all that wake sends.
func (p *part) sleep(ctx context.Context, e rare, side *Side) error {
	side.Latencies = newHistogram()
	runtime.GC()
	if err := pause.For(ctx, settle); err != nil {
		return err
	}
	began, cpu := time.Now(), used().CPU
	var stamp [stampSize]byte
	for i := range p.count() + 1 {
		if err := e.wait(ctx, stamp[:]); err != nil {
			return err
		}
		if i > 0 {
			side.Latencies.record(monotonic() - int64(binary.NativeEndian.Uint64(stamp[:])))
			side.Messages++
			continue
		}
		side.Quiet, side.QuietCPU = time.Since(began), used().CPU-cpu
		began, cpu = time.Now(), used().CPU
	}
	side.Elapsed, side.CPU = time.Since(began), used().CPU-cpu
	if p.Role == Both {
		return nil
	}
	// The sender disconnects once it knows that the last message has arrived.
	if err := e.wait(ctx, stamp[:]); !via.Ended(err) {
		return err
	}
	return nil
}

// rarely makes a rare of an end, which waits for interrupts.
func (e *end) rarely() rare {
	return rare{
		send: func(ctx context.Context, stamp []byte) error {
			copy(e.buffer(), stamp) // the one before has been sent
			if err := e.Post(stampSize); err != nil {
				return err
			}
			// An inline engine runs while a call waits.
			_, err := e.vi.SendWait(ctx)
			e.completed++
			return err
		},
		wait: func(ctx context.Context, stamp []byte) error {
			d, err := e.vi.RecvWait(ctx)
			if err != nil {
				return lost(err)
			}
			if d.Length() != stampSize {
				return fmt.Errorf("a message of %d bytes arrived, not of %d", d.Length(), stampSize)
			}
			copy(stamp, e.buffers[e.recvOffset(e.taken):])
			return e.Release()
		},
		poll: func() { e.Poll() },
	}
}

// openPipe makes both ends of a pipe: what a wake-up costs by itself, with no NIC in it.
func (p *part) openPipe(ctx context.Context) (func(*Side) error, error) {
	flags := unix.O_CLOEXEC // a read blocks its thread
	if p.Wire == idleRuntime {
		flags |= unix.O_NONBLOCK // a read parks its goroutine
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], flags); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	from, to := os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe")
	p.later(from.Close)
	stop := context.AfterFunc(ctx, func() { _ = to.Close() }) // which ends reads
	p.later(func() error {
		if stop() {
			return to.Close()
		}
		return nil
	})
	p.ready()
	e := rare{
		send: func(_ context.Context, stamp []byte) error { _, err := to.Write(stamp); return err },
		wait: func(_ context.Context, stamp []byte) error { _, err := io.ReadFull(from, stamp); return err },
		poll: func() {},
	}
	return func(side *Side) error {
		return together(ctx, func(ctx context.Context) error { return p.sleep(ctx, e, side) },
			func(ctx context.Context) error { return p.wake(ctx, e) })
	}, nil
}

// together runs both; the one that fails first ends the other.
func together(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var both sync.WaitGroup
	for _, f := range []func(context.Context) error{a, b} {
		both.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	both.Wait()
	return context.Cause(ctx)
}

// IdlePlaces are the ways for an application to wait: a wire, and the placement of its engine if it has one.
var IdlePlaces = []string{idleKernel, idleRuntime, "memory-inline", "memory-thread", "shm-inline", "shm-thread"}

// IdleTask makes the task Idle of a place. Errors wrap ErrSpec.
func IdleTask(place string, d, rest time.Duration, cores []int) (Task, error) {
	wire, placement, _ := strings.Cut(place, "-")
	t := NewTask(Idle, wire, stampSize, d, cores)
	t.Placement, t.Pause = cmp.Or(placement, "default"), rest
	return t, errors.Join(EachOf("place", []string{place}, IdlePlaces), t.Validate())
}
