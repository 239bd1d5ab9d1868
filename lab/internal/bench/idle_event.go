package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// eventEnds are both ends of an eventfd as a rareEnd: what a wake-up costs by
// itself, with no NIC in it.
type eventEnds struct {
	sent atomic.Int64
	// event is waited for by a goroutine, or else fd is read by a thread that
	// blocks.
	event *vfio.Eventfd
	fd    int
	// begun is closed when the waiter is ready. It puts a token into turns when it
	// goes to wait, as two signals at once would count as one.
	begun, turns chan struct{}
}

func newEventEnds(p IdlePlace) (e *eventEnds, err error) {
	e = &eventEnds{fd: -1, begun: make(chan struct{}), turns: make(chan struct{}, 1)}
	if p == IdleKernel {
		e.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		return e, os.NewSyscallError("eventfd", err)
	}
	e.event, err = vfio.NewEventfd()
	return e, err
}

func (e *eventEnds) close() error {
	if e.event != nil {
		return e.event.Close()
	}
	return unix.Close(e.fd)
}

func (e *eventEnds) start(context.Context) error {
	close(e.begun)
	return nil
}

func (e *eventEnds) started(ctx context.Context) error {
	return receive(ctx, e.begun)
}

func (e *eventEnds) rest(ctx context.Context, d time.Duration) error { return sleep(ctx, d) }

func (e *eventEnds) notify(ctx context.Context) error {
	if err := receive(ctx, e.turns); err != nil {
		return err
	}
	e.sent.Store(monotonic())
	if e.event != nil {
		return e.event.Signal()
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, err := unix.Write(e.fd, one[:])
	return os.NewSyscallError("write", err)
}

// await blocks its thread on the eventfd for a while at a time, so that ctx can
// end it.
func (e *eventEnds) await(ctx context.Context) (int64, error) {
	e.turns <- struct{}{}
	if e.event != nil {
		err := e.event.Wait(ctx)
		return e.sent.Load(), err
	}
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Second.Milliseconds()))
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return 0, os.NewSyscallError("poll", err)
		}
		var count [8]byte
		_, err = unix.Read(e.fd, count[:])
		return e.sent.Load(), os.NewSyscallError("read", err)
	}
	return 0, context.Cause(ctx)
}
