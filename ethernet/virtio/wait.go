package virtio

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// Wait returns when frames may have arrived.
func (q *queue) Wait(ctx context.Context) error {
	if err := q.port.failed(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return q.port.fail("wait for", err)
	}
	if q.pending(q.receiving.interrupt >= 0) {
		return nil
	}
	if q.receiving.interrupt >= 0 {
		q.sleep()
	} else {
		q.poll(ctx)
	}
	if err := q.port.failed(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return q.port.fail("wait for", err)
	}
	return nil
}

// pending reports whether frames have arrived, and asks for an interrupt if wanted.
func (q *queue) pending(interrupt bool) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	switch {
	case !q.live:
		return false
	case interrupt:
		return q.receiving.Interrupts(true)
	}
	return q.receiving.Pending()
}

// sleep waits for an interrupt, which may come at any time, or never. It does not rely on
// flags of the eventfd, which a back end shares.
func (q *queue) sleep() {
	q.waiting.Lock()
	defer q.waiting.Unlock()
	if q.eventfd < 0 {
		return
	}
	fds := []unix.PollFd{{Fd: int32(q.eventfd), Events: unix.POLLIN}}
	// A signal to the process ends it early, which does no harm.
	if n, _ := unix.Poll(fds, int(ethernet.WaitLimit/time.Millisecond)); n > 0 {
		passedfd.DrainEventfd(q.eventfd)
		q.counters.interrupts.Add(1)
	}
	q.lock.Lock()
	if q.live {
		q.receiving.Interrupts(false)
	}
	q.lock.Unlock()
}

// How poll looks for frames: some times in which others run, then after naps.
const (
	yields = 1000
	nap    = 50 * time.Microsecond
)

// poll looks for frames again and again, for as long as Wait may take.
func (q *queue) poll(ctx context.Context) {
	end := time.Now().Add(ethernet.WaitLimit)
	for i := 0; !q.pending(false) && q.port.failed() == nil && ctx.Err() == nil && time.Now().Before(end); i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(nap)
		}
	}
}
