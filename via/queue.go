package via

import "context"

// The methods in this file are the data path. They allocate nothing unless they
// fail, and hold no lock that another VI needs. The two queues of a VI may be
// used by two goroutines; several goroutines may also share one queue.

// PostSend hands a descriptor to the send queue. The NIC owns it, and the memory
// that its segments name, until SendDone or SendWait returns it. The bare ErrQueueFull
// says that as many are posted and not taken back as the queue holds. If the queue has
// a CQ, it may also say that the NIC has yet to write the CQ's entry for one that was
// taken back, which takes a moment. A send on a VI that is not connected is
// accepted and completes at once with StatusFlushed.
func (v *VI) PostSend(d *Descriptor) error { return v.d.PostSend(d) }

// PostRecv is PostSend for the receive queue. Receives are consumed in the order
// of their posts, one for each message. A receive may be posted before the VI is
// connected, and is then held for the connection.
func (v *VI) PostRecv(d *Descriptor) error { return v.d.PostRecv(d) }

// PostSendBatch posts descriptors in order with one doorbell, and returns how
// many were posted. If not all were, the error says why the next one was not.
func (v *VI) PostSendBatch(ds []*Descriptor) (int, error) { return v.d.PostSendBatch(ds) }

// PostRecvBatch is PostSendBatch for the receive queue.
func (v *VI) PostRecvBatch(ds []*Descriptor) (int, error) { return v.d.PostRecvBatch(ds) }

// ReadDirect reads n bytes at address of the peer's memory handle to m, from offset on, if that is a copy at
// once (SEMANTICS, "Without the target") and nothing is posted. Otherwise it returns false, the memory holds
// anything, and a descriptor has to be posted. Stats does not count it.
func (v *VI) ReadDirect(address uint64, handle uint32, m *Memory, offset, n int) bool {
	size := m.Size()
	return offset >= 0 && n > 0 && offset <= size && n <= size-offset && uint64(n) <= 1<<32-1 &&
		v.d.ReadDirect(address, handle, m.Address()+uint64(offset), m.Handle(), uint32(n))
}

// SendDone takes back the oldest descriptor of the send queue if it has
// completed. It does not block. Bare errors: ErrNotDone, nothing has completed
// yet; ErrQueueEmpty, nothing is posted. A descriptor that completed in error is
// returned along with an error that matches ErrDescriptor and holds a
// *StatusError. If the peer or an error has ended the connection, the error matches
// ErrDisconnected, ErrPeerLost or ErrConnectionBroken too.
func (v *VI) SendDone() (*Descriptor, error) { return v.d.SendDone() }

// RecvDone is SendDone for the receive queue.
func (v *VI) RecvDone() (*Descriptor, error) { return v.d.RecvDone() }

// SendDoneBatch takes back the oldest descriptors of the send queue that have
// completed, as many as into has room for, and returns how many it has put there. A
// descriptor that completed in error is returned alone, with its error; for the rest
// see SendDone.
func (v *VI) SendDoneBatch(into []*Descriptor) (int, error) { return v.d.SendDoneBatch(into) }

// RecvDoneBatch is SendDoneBatch for the receive queue.
func (v *VI) RecvDoneBatch(into []*Descriptor) (int, error) { return v.d.RecvDoneBatch(into) }

// NotifySend has f called with the next descriptor that the send queue completes, as
// SendDone returns it, on a goroutine of its own. Each call is for one descriptor; the
// handlers are called in the order of the calls, one at a time, and may call anything. A
// VI that is destroyed, or whose NIC is closed, forgets them; if the NIC fails they are
// called with the error and no descriptor. NotifySend fails with ErrInvalidState if the
// queue has a CQ.
func (v *VI) NotifySend(f func(*Descriptor, error)) error { return v.d.NotifySend(f) }

// NotifyRecv is NotifySend for the receive queue.
func (v *VI) NotifyRecv(f func(*Descriptor, error)) error { return v.d.NotifyRecv(f) }

// SendWait waits until the oldest descriptor of the send queue has completed, or ctx
// ends, and takes it back as SendDone does. It fails with ErrInvalidState if the queue has a CQ: wait for that
// instead.
func (v *VI) SendWait(ctx context.Context) (*Descriptor, error) { return v.d.SendWait(ctx) }

// RecvWait is SendWait for the receive queue.
func (v *VI) RecvWait(ctx context.Context) (*Descriptor, error) { return v.d.RecvWait(ctx) }
