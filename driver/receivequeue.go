package driver

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ReceiveQueueAttributes are given when a receive queue is made.
type ReceiveQueueAttributes struct {
	// Ptag that the descriptors, their memory and the VIs must have; nil is the NIC's
	// default.
	Ptag *Ptag
	// Depth is the number of descriptors that the queue holds, 1 to the NIC's limit; zero is
	// DefaultDepth.
	Depth int
}

// CreateReceiveQueue makes a receive queue for VIs that name it in their attributes. Its
// receives complete to cq, for life. Errors: ErrInvalidParameter without a cq, ErrResource
// if the NIC has no more VIs, of which this counts as one, or the CQ could not hold the
// completions, and ErrInvalidPtag.
func (n *NIC) CreateReceiveQueue(ctx context.Context, a ReceiveQueueAttributes, cq *CQ) (*ReceiveQueue, error) {
	return get(ctx, n.do, "create receive queue", func() (*ReceiveQueue, error) {
		v, err := n.createChecked(ctx, VIAttributes{shared: true, Reliability: datasheet.Unreliable, MaxTransfer: n.identity.MaxTransfer,
			Ptag: a.Ptag, SendDepth: 1, RecvDepth: a.Depth}, nil, cq)
		if err != nil {
			return nil, err
		}
		return &ReceiveQueue{v}, nil
	})
}

// Depth returns the number of descriptors that the queue holds.
func (q *ReceiveQueue) Depth() int { return q.v.Attributes().RecvDepth }

// Queued returns the number of descriptors that are posted and were not given out by the CQ.
func (q *ReceiveQueue) Queued() int { return q.v.recv.queued() }

// NewDescriptors is VI.NewDescriptors for the queue: they live as long as it does.
func (q *ReceiveQueue) NewDescriptors(ctx context.Context, n, segments int) ([]*descriptors.Descriptor, error) {
	return q.v.NewDescriptors(ctx, n, segments)
}

// PostRecv hands a descriptor to the queue: see VI.PostSend. The NIC owns it until the CQ
// gives it out.
func (q *ReceiveQueue) PostRecv(d *descriptors.Descriptor) error { return q.v.PostRecv(d) }

// PostRecvBatch is PostRecv for several, with one doorbell: see VI.PostRecvBatch.
func (q *ReceiveQueue) PostRecvBatch(ds []*descriptors.Descriptor) (int, error) {
	return q.v.PostRecvBatch(ds)
}

// Close ends the queue, and frees the descriptors from NewDescriptors. What is posted is
// the program's again. It fails with ErrResource while VIs share the queue.
func (q *ReceiveQueue) Close(ctx context.Context) error {
	return q.v.closeAll(ctx, "close receive queue", func() error {
		if q.v.leaving.uses > 0 {
			return refusal(descriptors.ErrResource, "close the VIs that share it first", "")
		}
		return nil
	}, nil)
}
