package driver

import (
	"context"

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

// Queued returns how many descriptors are posted and not taken back; zero once
// the VI is closed.
func (v *VI) Queued() (send, recv int) { return v.send.queued(), v.recv.queued() }

// VIStats has the counters of a VI since it was made. The counters of receives are zero if the
// VI shares a receive queue: the Stats of that queue have them.
type VIStats struct {
	SendsPosted       uint64 `json:"sends_posted" help:"Sends that were posted." unit:"descriptors"`
	SendsCompleted    uint64 `json:"sends_completed" help:"Sends that have completed and were taken back." unit:"descriptors"`
	SendsFailed       uint64 `json:"sends_failed" help:"Sends that have completed in error." unit:"descriptors"`
	ReceivesPosted    uint64 `json:"receives_posted" help:"Receives that were posted." unit:"descriptors"`
	ReceivesCompleted uint64 `json:"receives_completed" help:"Receives that have completed and were taken back." unit:"descriptors"`
	ReceivesFailed    uint64 `json:"receives_failed" help:"Receives that have completed in error." unit:"descriptors"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the VI or its NIC is closed.
func (v *VI) Stats() (s VIStats, err error) {
	err = v.n.doAny(v.n.background, "read counters of VI", func() error {
		return v.leaving.unless(v.n, func() error {
			s.SendsPosted, s.SendsCompleted, s.SendsFailed = v.send.counts()
			s.ReceivesPosted, s.ReceivesCompleted, s.ReceivesFailed = v.recv.counts()
			return nil
		})
	})
	return s, err
}

// CQStats has the counters of a completion queue since it was made.
type CQStats struct {
	Entries  uint64 `json:"entries" help:"Completion entries that were read." unit:"entries"`
	Capacity uint64 `json:"capacity" help:"Completion entries that the queue has room for." unit:"entries" kind:"gauge"`
	Promised uint64 `json:"promised" help:"Completion entries that the attached work queues may need." unit:"entries" kind:"gauge"`
}

// Stats returns the counters, also on a device that has failed. It fails with ErrClosed once
// the CQ or its NIC is closed.
func (c *CQ) Stats() (s CQStats, err error) {
	err = c.n.doAny(c.n.background, "read counters of CQ", func() error {
		return c.leaving.unless(c.n, func() error {
			c.mu.Lock()
			s.Entries = c.read
			c.mu.Unlock()
			c.n.mu.Lock()
			defer c.n.mu.Unlock()
			s.Capacity, s.Promised = uint64(c.entries), uint64(c.promised)
			return nil
		})
	})
	return s, err
}
