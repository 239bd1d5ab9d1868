package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// PostSend hands a descriptor to the send queue. The NIC owns it, and the memory
// that its segments name, until SendDone or SendWait returns it. The bare ErrQueueFull
// says that as many are posted and not taken back as the queue holds. If the queue has
// a CQ, it may also say that the NIC has yet to write the CQ's entry for one that was
// taken back, which takes a moment. Other errors are ErrPosted, ErrOtherVI, ErrNotRearmed,
// ErrBadHandle, ErrInvalidPtag or ErrClosed, or the reason why a NIC whose
// doorbells are not mapped has not taken it; what else is wrong with a descriptor shows in its
// completion. A send on a VI that is not connected is
// accepted and completes at once with StatusFlushed.
func (v *VI) PostSend(d *descriptors.Descriptor) error { return v.send.postOne(d) }

// PostRecv is PostSend for the receive queue. Receives are consumed in the order
// of their posts, one for each message. A receive may be posted before the VI is
// connected, and is then held for the connection.
func (v *VI) PostRecv(d *descriptors.Descriptor) error { return v.recv.postOne(d) }

// PostSendBatch posts descriptors in order with one doorbell, and returns how
// many were posted. If not all were, the error says why the next one was not.
func (v *VI) PostSendBatch(ds []*descriptors.Descriptor) (int, error) { return v.send.post(ds) }

// PostRecvBatch is PostSendBatch for the receive queue.
func (v *VI) PostRecvBatch(ds []*descriptors.Descriptor) (int, error) { return v.recv.post(ds) }

// ReadDirect reads n bytes at address of the peer's memory handle to m, from offset on, if that is a copy at
// once (via's SEMANTICS, "Without the target") and nothing is posted. Otherwise it returns false, the memory holds
// anything, and a descriptor has to be posted. Stats does not count it.
func (v *VI) ReadDirect(address uint64, handle uint32, m *Memory, offset, n int) bool {
	if size := m.Size(); offset < 0 || n <= 0 || offset > size || n > size-offset || uint64(n) > 1<<32-1 {
		return false
	}
	q := &v.send
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.refuses || q.bell.call == nil || q.next != q.taken {
		return false
	}
	return q.n.local != nil && q.n.local.ReadDirect(q.vi.number, handle, address, m.handle, m.address+uint64(offset), uint32(n))
}

// SendDone takes back the oldest descriptor of the send queue if it has
// completed. It does not block. Bare errors: ErrNotDone, nothing has completed
// yet; ErrQueueEmpty, nothing is posted. A descriptor that completed in error is
// returned along with an error that matches ErrDescriptor and holds a
// *StatusError. If the peer or an error has ended the connection, the error matches
// ErrDisconnected, ErrPeerLost or ErrConnectionBroken too. ErrProtocol is a completion that
// the NIC must not write.
func (v *VI) SendDone() (*descriptors.Descriptor, error) { return v.send.done(true) }

// RecvDone is SendDone for the receive queue.
func (v *VI) RecvDone() (*descriptors.Descriptor, error) { return v.recv.done(true) }

// SendDoneBatch takes back the oldest descriptors of the send queue that have
// completed, as many as into has room for, and returns how many it has put there. A
// descriptor that completed in error is returned alone, with its error; for the rest
// see SendDone.
func (v *VI) SendDoneBatch(into []*descriptors.Descriptor) (int, error) {
	return v.send.pollBatch(into)
}

// RecvDoneBatch is SendDoneBatch for the receive queue.
func (v *VI) RecvDoneBatch(into []*descriptors.Descriptor) (int, error) {
	return v.recv.pollBatch(into)
}

// NotifySend calls f with the next descriptor that the send queue completes, as
// SendDone returns it, on a goroutine of its own. Each call is for one descriptor; the
// handlers are called in the order of the calls, one at a time, and may call anything. A
// VI that is closed, or whose NIC is, forgets them; if the NIC fails they are
// called with the error and no descriptor. It fails with ErrInvalidState if the
// queue has a CQ, with ErrInvalidParameter for a nil f, and with ErrClosed.
func (v *VI) NotifySend(f func(*descriptors.Descriptor, error)) error { return v.send.notify(f) }

// NotifyRecv is NotifySend for the receive queue.
func (v *VI) NotifyRecv(f func(*descriptors.Descriptor, error)) error { return v.recv.notify(f) }

func (q *workQueue) notify(f func(*descriptors.Descriptor, error)) error {
	v := q.vi
	return v.look(q.n.background, "notify of "+q.side, func() error {
		switch {
		case f == nil:
			return hinted(fmt.Errorf("%w: the handler is nil", descriptors.ErrInvalidParameter), "")
		case q == &v.recv && v.source() != nil:
			return q.closedAs
		case q.cq != nil:
			return hinted(descriptors.ErrInvalidState, "the queue has a completion queue: ask that for a notice")
		}
		return q.notices.add(q.n, f, func(w *waiter) (*descriptors.Descriptor, error) { return q.wait(w, true) })
	})
}

// SendWait waits until the oldest descriptor of the send queue has completed, or ctx
// ends, and takes it back as SendDone does. It fails with ErrInvalidState if the queue has a CQ: wait for that
// instead.
func (v *VI) SendWait(ctx context.Context) (*descriptors.Descriptor, error) {
	return v.send.await(ctx)
}

// RecvWait is SendWait for the receive queue.
func (v *VI) RecvWait(ctx context.Context) (*descriptors.Descriptor, error) {
	return v.recv.await(ctx)
}

func (q *workQueue) await(ctx context.Context) (*descriptors.Descriptor, error) {
	if ctx == nil {
		return nil, q.n.noContext("wait for " + q.side)
	}
	if q.cq != nil {
		return nil, q.n.refuse("wait for "+q.side, descriptors.ErrInvalidState, "the queue has a completion queue: wait there")
	}
	return q.wait(&waiter{n: q.n, ctx: ctx, done: q.n.done}, false)
}

// Queued returns how many descriptors are posted and not taken back; zero once
// the VI is closed.
func (v *VI) Queued() (send, recv int) { return v.send.queued(), v.recv.queued() }
