package via

import "context"

// The methods in this file are the data path. They allocate nothing unless they
// fail, and hold no lock that another VI needs. The two queues of a VI may be
// used by two goroutines; several goroutines may also share one queue.

// PostSend hands a descriptor to the send queue. The NIC owns it, and the memory
// that its segments name, until SendDone or SendWait returns it. ErrQueueFull,
// bare, says that as many are posted and not taken back as the queue holds; of a
// queue with a CQ also that the NIC has yet to write the CQ's entry for one that was
// taken back, which takes a moment. A send on a VI that is not connected is
// accepted and completes at once with StatusFlushed.
func (v *VI) PostSend(d *Descriptor) error {
	const op = "post send"
	if d == nil {
		return v.nic.refuse(op, ErrInvalidParameter, "", "the descriptor is nil")
	}
	if err := v.p.PostSend(d); err != nil {
		return v.nic.answer(op, err)
	}
	return nil
}

// PostRecv is PostSend for the receive queue. Receives are consumed in the order
// of their posts, one for each message. A receive may be posted before the VI is
// connected, and is then held for the connection.
func (v *VI) PostRecv(d *Descriptor) error {
	const op = "post receive"
	if d == nil {
		return v.nic.refuse(op, ErrInvalidParameter, "", "the descriptor is nil")
	}
	if err := v.p.PostRecv(d); err != nil {
		return v.nic.answer(op, err)
	}
	return nil
}

// PostSendBatch posts descriptors in order with one doorbell, and returns how
// many were posted. If not all were, the error says why the next one was not.
func (v *VI) PostSendBatch(ds []*Descriptor) (int, error) {
	const op = "post sends"
	if err := v.checkBatch(op, ds); err != nil {
		return 0, err
	}
	n, err := v.p.PostSendBatch(ds)
	if err != nil {
		return n, v.nic.answer(op, err)
	}
	return n, nil
}

// PostRecvBatch is PostSendBatch for the receive queue.
func (v *VI) PostRecvBatch(ds []*Descriptor) (int, error) {
	const op = "post receives"
	if err := v.checkBatch(op, ds); err != nil {
		return 0, err
	}
	n, err := v.p.PostRecvBatch(ds)
	if err != nil {
		return n, v.nic.answer(op, err)
	}
	return n, nil
}

func (v *VI) checkBatch(op string, ds []*Descriptor) error {
	for i, d := range ds {
		if d == nil {
			return v.nic.refuse(op, ErrInvalidParameter, "", "descriptor %d of %d is nil", i, len(ds))
		}
	}
	return nil
}

// SendDone takes back the oldest descriptor of the send queue if it has
// completed. It does not block. Bare errors: ErrNotDone, nothing has completed
// yet; ErrQueueEmpty, nothing is posted. A descriptor that completed in error is
// returned along with an error that matches ErrDescriptor and holds a
// *StatusError. If the peer or an error has ended the connection, the error matches
// ErrDisconnected, ErrPeerLost or ErrConnectionBroken too.
func (v *VI) SendDone() (*Descriptor, error) {
	d, err := v.p.SendDone()
	if err != nil {
		return d, v.nic.answer("send", err)
	}
	return d, nil
}

// RecvDone is SendDone for the receive queue.
func (v *VI) RecvDone() (*Descriptor, error) {
	d, err := v.p.RecvDone()
	if err != nil {
		return d, v.nic.answer("receive", err)
	}
	return d, nil
}

// SendDoneBatch takes back the oldest descriptors of the send queue that have
// completed, as many as into has room for, and returns how many it has put there. A
// descriptor that completed in error is returned alone, with its error; for the rest
// see SendDone.
func (v *VI) SendDoneBatch(into []*Descriptor) (int, error) {
	n, err := v.p.SendDoneBatch(into)
	if err != nil {
		return n, v.nic.answer("send", err)
	}
	return n, nil
}

// RecvDoneBatch is SendDoneBatch for the receive queue.
func (v *VI) RecvDoneBatch(into []*Descriptor) (int, error) {
	n, err := v.p.RecvDoneBatch(into)
	if err != nil {
		return n, v.nic.answer("receive", err)
	}
	return n, nil
}

// SendWait is SendDone, but waits until the oldest descriptor has completed or
// ctx ends. It fails with ErrInvalidState if the queue has a CQ: wait for that
// instead.
func (v *VI) SendWait(ctx context.Context) (*Descriptor, error) {
	const op = "wait for send"
	if err := v.checkWait(ctx, op, v.sendCQ); err != nil {
		return nil, err
	}
	d, err := v.p.SendWait(ctx)
	if err != nil {
		return d, v.nic.answer(op, err)
	}
	return d, nil
}

// RecvWait is SendWait for the receive queue.
func (v *VI) RecvWait(ctx context.Context) (*Descriptor, error) {
	const op = "wait for receive"
	if err := v.checkWait(ctx, op, v.recvCQ); err != nil {
		return nil, err
	}
	d, err := v.p.RecvWait(ctx)
	if err != nil {
		return d, v.nic.answer(op, err)
	}
	return d, nil
}

func (v *VI) checkWait(ctx context.Context, op string, cq *CQ) error {
	if ctx == nil {
		return v.nic.check(ctx, op)
	}
	if cq != nil {
		return v.nic.refuse(op, ErrInvalidState, "wait for the CQ instead", "the queue completes to a CQ")
	}
	return nil
}

// answer passes on what is no failure, and makes an Error of all else.
func (n *NIC) answer(op string, err error) error {
	if c, ok := err.(Code); ok && (c == ErrNotDone || c == ErrQueueEmpty || c == ErrQueueFull) {
		return err
	}
	return n.fail(op, err)
}
