package afxdp

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Wait returns when frames may have arrived.
func (q *queue) Wait(ctx context.Context) error {
	if err := q.ended(ctx); err != nil {
		return err
	}
	if q.look() {
		return nil
	}
	if q.port.config.Interrupts {
		q.sleep()
	} else {
		q.poll(ctx)
	}
	return q.ended(ctx)
}

// ended says why there is nothing to wait for.
func (q *queue) ended(ctx context.Context) error {
	if err := q.port.failed(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return q.port.fail("wait for", err)
	}
	return nil
}

// look reports whether frames have arrived. If not, the kernel is woken.
func (q *queue) look() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	switch {
	case !q.live:
		return false
	case q.socket.rings.Pending():
		return true
	}
	q.wake(true)
	return q.socket.rings.Pending()
}

// pending reports whether sleep is to end.
func (q *queue) pending() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return !q.live || q.socket.rings.Pending()
}

// sleep waits until the kernel says that a frame has arrived. It holds no thread.
func (q *queue) sleep() {
	q.sleeping.Lock()
	defer q.sleeping.Unlock()
	q.lock.Lock()
	s := q.socket
	q.lock.Unlock()
	if s == nil {
		time.Sleep(nap)
		return
	}
	// What fails here is that the socket is closed, which ends the read too.
	_ = s.file.SetReadDeadline(time.Now().Add(ethernet.WaitLimit))
	switch err := s.conn.Read(q.arrived); {
	case err == nil:
		q.counters.interrupts.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
	default: // the interface is gone, or the socket
		q.port.watch.poke()
		time.Sleep(nap)
	}
}

// How poll looks for frames: some times in which others run, then after naps.
const (
	yields = 1000
	nap    = 50 * time.Microsecond
)

// poll looks for frames again and again, for as long as Wait may take.
func (q *queue) poll(ctx context.Context) {
	end := time.Now().Add(ethernet.WaitLimit)
	for i := 0; !q.pending() && q.port.failed() == nil && ctx.Err() == nil && time.Now().Before(end); i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(nap)
		}
	}
}
