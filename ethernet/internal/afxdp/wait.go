package afxdp

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// Wait wakes the kernel first.
func (q *queue) Wait(ctx context.Context) error {
	q.lock.Lock()
	if q.Live && !q.socket.rings.Pending() {
		q.wake(true)
	}
	q.lock.Unlock()
	return q.Queue.Wait(ctx)
}

func (q *queue) Ready() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.Live && q.socket.rings.Pending()
}

// arrived is the condition that ends a read of the socket.
func (q *queue) arrived(uintptr) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	return !q.Live || q.socket.rings.Pending()
}

// Sleep implements port.Ring. It holds no thread.
func (q *queue) Sleep(context.Context) (bool, error) {
	if !q.device.config.Interrupts {
		return false, nil
	}
	q.sleeping.Lock()
	defer q.sleeping.Unlock()
	q.lock.Lock()
	s := q.socket
	q.lock.Unlock()
	if s == nil {
		time.Sleep(port.Nap)
		return true, nil
	}
	switch err := s.alarm.wait(q.hasArrived); {
	case err == nil:
		q.Counters.Interrupts.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
	default: // the interface is gone, or the socket
		q.Port.Poke()
		time.Sleep(port.Nap)
	}
	return true, nil
}
