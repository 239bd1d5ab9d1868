package virtio

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// stillHint says what may help if a queue stands still.
func (d *device) stillHint() string {
	if d.vhost() {
		return "is the back end stopped, or does it serve fewer queues than the port has?"
	}
	return "does the device serve fewer queues than the port has?"
}

// Trouble implements port.Ring. A device restarts a ring that is full and stands still. A back end
// of vhost-user is a process that may be stopped: it would not answer, and goes on by itself. So it
// is only reported, once.
func (q *queue) Trouble(now time.Time, _ bool) error {
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return errors.Join(q.receiving.Violation(), q.sending.Violation())
	}
	if n := q.sending.Lent(); n > 0 && !q.sending.Near(n) {
		// A notification may have been lost: QEMU 11.1 does not ask for one where it should,
		// with packed rings and the event index, after a frame had to wait for its receiver.
		q.sending.bell.Ring()
	}
	if q.collect(); q.sending.Room() > 0 {
		q.Full = false
	}
	if q.sending.Lent() == 0 {
		q.moved()
		return nil
	}
	why := q.Stands(now)
	switch {
	case why == nil, q.Full && !q.device.vhost():
		return why
	case !q.reported:
		q.reported = true
		q.Port.Log().Warn("a queue stands still", "queue", q.Index, "why", why, "hint", q.device.stillHint())
	}
	return nil
}

// moved notes that the device has used a buffer of the send ring, or has none.
func (q *queue) moved() {
	q.Moved()
	q.reported = false
}

func (q *queue) Renew(ctx context.Context) error {
	q.pause()
	d := q.device
	rings := []*ring{&q.receiving, &q.sending}
	for _, r := range rings {
		if err := d.transport.StopQueue(ctx, r.options.Index); err != nil {
			return err
		}
	}
	q.reclaimAll()
	for _, r := range rings {
		if err := r.make(d.memory); err != nil {
			return err
		}
		if err := d.enable(ctx, r); err != nil {
			return err
		}
	}
	if !q.fill() {
		return ethernet.ErrNoBuffers
	}
	q.run()
	return nil
}
