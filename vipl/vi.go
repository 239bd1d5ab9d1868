package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// depth is the number of descriptors that a work queue holds if the program does not say. It is
// MaxDescriptorsPerQueue.
const depth = 1024

// viAttributes are VIP_VI_ATTRIBUTES. There is no quality of service to choose.
type viAttributes struct {
	reliability         via.Reliability
	maxTransfer         uint32
	ptag                handle
	rdmaWrite, rdmaRead bool
	send, recv          int // descriptors that its queues hold
}

func (n *nic) viAttributes(a viAttributes) (via.VIAttributes, error) {
	p, err := n.findPtag(a.ptag)
	if err != nil {
		return via.VIAttributes{}, err
	}
	return via.VIAttributes{Reliability: a.reliability, MaxTransfer: a.maxTransfer, Ptag: p.via,
		RDMAWrite: a.rdmaWrite, RDMARead: a.rdmaRead, SendDepth: a.send, RecvDepth: a.recv}, nil
}

type vi struct {
	name       handle
	nic        *nic
	via        *via.VI
	send, recv queue

	mu   sync.Mutex
	ptag handle // guarded by mu
}

type queue struct {
	cq   *cq // nil for none
	post func(*via.Descriptor) error
	done func() (*via.Descriptor, error)
	wait func(context.Context) (*via.Descriptor, error)
	// last is the region of the descriptor that was posted last.
	last atomic.Pointer[region]
}

// createVI makes a VI whose queues complete to CQs, or to none for nil.
func (n *nic) createVI(a viAttributes, send, recv *cq) (*vi, error) {
	attributes, err := n.viAttributes(a)
	if err != nil {
		return nil, err
	}
	if err := send.claim(attributes.SendDepth); err != nil {
		return nil, err
	}
	if err := recv.claim(attributes.RecvDepth); err != nil {
		send.claim(-attributes.SendDepth)
		return nil, err
	}
	made, err := n.device.via.CreateVI(n.ctx, attributes, send.driver(), recv.driver())
	if err != nil {
		send.claim(-attributes.SendDepth)
		recv.claim(-attributes.RecvDepth)
		return nil, err
	}
	v := &vi{nic: n, via: made, ptag: a.ptag}
	v.send = queue{cq: send, post: made.PostSend, done: made.SendDone, wait: made.SendWait}
	v.recv = queue{cq: recv, post: made.PostRecv, done: made.RecvDone, wait: made.RecvWait}
	n.device.vis.Store(made, v)
	if err := enter(n, &vis, v, &v.name, n.vis); err != nil {
		n.device.vis.Delete(made)
		v.dissolve(n.ctx)
		return nil, err
	}
	return v, nil
}

// setAttributes changes the attributes of an idle VI.
func (v *vi) setAttributes(a viAttributes) error {
	now := v.via.Attributes()
	a.send, a.recv = now.SendDepth, now.RecvDepth
	attributes, err := v.nic.viAttributes(a)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.via.SetAttributes(v.nic.ctx, attributes); err != nil {
		return err
	}
	v.ptag = a.ptag
	return nil
}

func (v *vi) destroy() error {
	if err := v.via.Close(v.nic.ctx); err != nil {
		return err
	}
	vis.remove(v.name)
	v.nic.device.vis.Delete(v.via)
	n := v.nic
	n.mu.Lock()
	delete(n.vis, v)
	n.mu.Unlock()
	v.unclaim()
	return nil
}

func (v *vi) unclaim() {
	a := v.via.Attributes()
	_ = v.send.cq.claim(-a.SendDepth)
	_ = v.recv.cq.claim(-a.RecvDepth)
}

// dissolve ends the VI in any state. The program may have freed the descriptors on its
// queues, which are not read therefore. What fails is freed with the NIC.
func (v *vi) dissolve(ctx context.Context) {
	_ = v.via.Disconnect(ctx)
	if v.via.Abandon(ctx) == nil {
		v.unclaim()
	}
}

// postAt posts the descriptor at an application address in the region of a handle.
func (v *vi) postAt(q *queue, address uint64, memory uint32) error {
	r := q.last.Load()
	if r == nil || r.handle != memory || r.gone.Load() {
		found, ok := v.nic.regions.Load(memory)
		if !ok {
			return via.ErrInvalidParameter
		}
		r = found.(*region)
		q.last.Store(r)
	}
	d := r.descriptor(address)
	if d == nil {
		return via.ErrInvalidParameter
	}
	err := q.post(d)
	if err != nil && errors.Is(err, driver.ErrNotRearmed) {
		// Its status is of the last time. It is not posted, so that it is the program's.
		d.Control().StoreStatus(0)
		err = q.post(d)
	}
	return err
}
