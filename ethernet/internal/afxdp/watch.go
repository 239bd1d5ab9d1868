package afxdp

import (
	"context"
	"time"
)

// Trouble implements port.Ring. Without a link frames may stand still.
func (q *queue) Trouble(now time.Time, up bool) error {
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.socket == nil {
		return nil
	}
	if !q.Live {
		return q.socket.rings.Violation()
	}
	q.wake(true)
	if !q.Full || !up {
		q.Moved()
		return nil
	}
	if q.complete(q.socket); q.socket.rings.Room() >= q.device.geometry.parts {
		q.Full = false
		q.Moved()
		return nil
	}
	return q.Stands(now)
}

// Renew implements port.Ring: it gives the queue a new socket.
func (q *queue) Renew(ctx context.Context) error {
	if err := q.stop(); err != nil {
		return err
	}
	return q.device.host.do(func() error { return q.device.startQueue(ctx, q) })
}
