package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ReceiveQueue is a receive queue that several VIs share: whichever gets a message takes
// the next receive. VIA does not have it. Its receives complete to its CQ, which gives out
// VI and descriptor (Completion). They complete in the order of their messages on each VI,
// and in any order between VIs.
type ReceiveQueue struct {
	v *VI // the NIC has it as an endpoint that is never connected
}

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
	if a.Depth == 0 {
		a.Depth = min(DefaultDepth, n.attributes.MaxDescriptors)
	}
	d, err := n.d.CreateVI(ctx, driver.VIAttributes{Kind: datasheet.KindReceiveQueue, Reliability: Unreliable,
		MaxTransfer: n.attributes.MaxTransfer, Ptag: a.Ptag, SendDepth: 1, RecvDepth: a.Depth}, nil, cq.driver())
	if err != nil {
		return nil, err
	}
	v := &VI{object: object{nic: n}, Queues: &d.Queues, d: d, attributes: VIAttributes{Ptag: d.Attributes().Ptag, RecvDepth: a.Depth}}
	d.SetUser(v)
	return &ReceiveQueue{v}, nil
}

// driver is the driver's endpoint, nil for none.
func (q *ReceiveQueue) driver() *driver.VI {
	if q == nil {
		return nil
	}
	return q.v.d
}

// leave says that a VI shares q, which may be nil, no longer.
func (q *ReceiveQueue) leave() {
	if q != nil {
		q.v.nic.release(&q.v.object)
	}
}

// Ptag that the queue's descriptors have.
func (q *ReceiveQueue) Ptag() *Ptag { return q.v.Attributes().Ptag }

// Depth returns the number of descriptors that the queue holds.
func (q *ReceiveQueue) Depth() int { return q.v.Attributes().RecvDepth }

// Queued returns the number of descriptors that are posted and were not given out by the CQ.
func (q *ReceiveQueue) Queued() int {
	_, n := q.v.d.Queued()
	return n
}

// NewDescriptors is VI.NewDescriptors for the queue: they live as long as it does.
func (q *ReceiveQueue) NewDescriptors(ctx context.Context, n, segments int) ([]*Descriptor, error) {
	return q.v.NewDescriptors(ctx, n, segments)
}

// PostRecv hands a descriptor to the queue: see VI.PostSend. The NIC owns it until the CQ
// gives it out.
func (q *ReceiveQueue) PostRecv(d *Descriptor) error { return q.v.d.PostRecv(d) }

// PostRecvBatch is PostRecv for several, with one doorbell: see VI.PostRecvBatch.
func (q *ReceiveQueue) PostRecvBatch(ds []*Descriptor) (int, error) { return q.v.d.PostRecvBatch(ds) }

// Close ends the queue, and frees the descriptors from NewDescriptors. What is posted is
// the program's again. It fails with ErrResource while VIs share the queue.
func (q *ReceiveQueue) Close(ctx context.Context) error {
	return q.v.end(ctx, "close receive queue", ErrResource, "close the VIs that share it first", func() (bool, error) {
		return q.v.closeAll(ctx)
	})
}
