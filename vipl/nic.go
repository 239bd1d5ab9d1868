package main

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/via"
)

// nic is the result of one VipOpenNic. Objects belong to the handle with which they were
// made, also if another handle is of the same device.
type nic struct {
	name    handle
	called  string // by the program
	device  *device
	handler atomic.Pointer[errorHandler]
	regions sync.Map // uint32 to *region

	// ctx ends when the handle is closed.
	ctx context.Context
	end context.CancelFunc

	mu      sync.Mutex // guards what follows
	closed  bool
	address uintptr // where the program sees the address of the NIC, in C's memory
	// ptag is the default of this handle, once it is needed. The first VipCreatePtag
	// gives it to the program: many have one ptag, and name it for memory but not for VIs.
	ptag        *ptag
	vis         map[*vi]bool
	cqs         map[*cq]bool
	ptags       map[*ptag]bool
	connections map[*connection]bool
}

type ptag struct {
	name handle
	nic  *nic
	via  *via.Ptag
}

// openNIC opens the device of a name.
func openNIC(name string) (*nic, error) {
	address, err := addressOf(name)
	if err != nil {
		return nil, err
	}
	n := &nic{called: name, vis: map[*vi]bool{}, cqs: map[*cq]bool{}, ptags: map[*ptag]bool{}, connections: map[*connection]bool{}}
	n.ctx, n.end = context.WithCancel(context.Background())
	if n.device, err = openDevice(running(address), n); err != nil {
		return nil, err
	}
	if nics.add(n, &n.name) == 0 {
		return nil, errors.Join(via.ErrResource, n.device.leave(n))
	}
	return n, nil
}

// close ends everything that was made with the handle, in any state.
func (n *nic) close() error {
	if !nics.remove(n.name) {
		return via.ErrInvalidParameter
	}
	n.mu.Lock()
	n.closed = true
	// Others may be destroying some of them.
	owned := struct {
		vis         map[*vi]bool
		cqs         map[*cq]bool
		ptags       map[*ptag]bool
		connections map[*connection]bool
	}{maps.Clone(n.vis), maps.Clone(n.cqs), maps.Clone(n.ptags), maps.Clone(n.connections)}
	tag := n.ptag
	n.mu.Unlock()
	n.end() // those who wait
	// The device may go on for others. What fails here is freed with it.
	ctx := context.Background()
	for v := range owned.vis {
		vis.remove(v.name)
		n.device.vis.Delete(v.via)
		v.dissolve(ctx)
	}
	for c := range owned.cqs {
		cqs.remove(c.name)
		_ = c.via.Close(ctx)
	}
	n.regions.Range(func(_, r any) bool {
		_ = r.(*region).end(ctx)
		return true
	})
	for p := range owned.ptags {
		ptags.remove(p.name)
		_ = p.via.Close(ctx)
	}
	if tag != nil {
		_ = tag.via.Close(ctx)
	}
	for c := range owned.connections {
		connections.remove(c.name)
		_ = c.via.Reject(ctx)
	}
	return n.device.leave(n)
}

// enter makes a new object of n's known: it gets a handle, which name has before the object can be found.
func enter[T any](n *nic, t *table[T], object *T, name *handle, owned map[*T]bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return via.ErrInvalidParameter
	}
	if t.add(object, name) == 0 {
		return via.ErrResource
	}
	owned[object] = true
	return nil
}

// cqName returns the handle of a CQ; zero if it is not one of n's.
func (n *nic) cqName(of *via.CQ) handle {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.cqs {
		if c.via == of {
			return c.name
		}
	}
	return 0
}

// defaultPtag returns the ptag that NULL stands for. mu is held.
func (n *nic) defaultPtag() (*ptag, error) {
	if n.ptag == nil {
		p, err := n.device.via.CreatePtag(n.ctx)
		if err != nil {
			return nil, err
		}
		n.ptag = &ptag{nic: n, via: p}
	}
	return n.ptag, nil
}

// createPtag makes a ptag, or gives the program the default.
func (n *nic) createPtag() (*ptag, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, err := n.defaultPtag()
	if err == nil && p.name != 0 {
		var made *via.Ptag
		made, err = n.device.via.CreatePtag(n.ctx)
		p = &ptag{nic: n, via: made}
	}
	if err != nil {
		return nil, err
	}
	if ptags.add(p, &p.name) == 0 {
		return nil, via.ErrResource
	}
	n.ptags[p] = true
	return p, nil
}

// destroyPtag ends a ptag. If it was the default, the next that is needed is a new one.
func (n *nic) destroyPtag(h handle) error {
	p := ptags.find(h)
	if p == nil || p.nic != n {
		return via.ErrInvalidParameter
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := p.via.Close(n.ctx); err != nil {
		return err
	}
	ptags.remove(h)
	delete(n.ptags, p)
	if n.ptag == p {
		n.ptag = nil
	}
	return nil
}

// findPtag returns the ptag of a handle; the default for zero.
func (n *nic) findPtag(h handle) (*ptag, error) {
	if h == 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.defaultPtag()
	}
	if p := ptags.find(h); p != nil && p.nic == n {
		return p, nil
	}
	return nil, via.ErrInvalidPtag
}

// setHandler sets who is told of asynchronous errors; nil has them logged.
func (n *nic) setHandler(h *errorHandler) {
	n.handler.Store(h)
	n.device.setHandlers()
}

// logOpen says why a NIC could not be opened, which no return code does.
func logOpen(name string, err error) {
	logger.Error("VipOpenNic", "device", name, "error", err)
}
