package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

type memoryAttributes struct {
	ptag                handle
	rdmaWrite, rdmaRead bool
}

func (n *nic) memoryAttributes(a memoryAttributes) (via.MemoryAttributes, error) {
	p, err := n.findPtag(a.ptag)
	if err != nil {
		return via.MemoryAttributes{}, err
	}
	return via.MemoryAttributes{Ptag: p.via, RDMAWrite: a.rdmaWrite, RDMARead: a.rdmaRead}, nil
}

type region struct {
	nic        *nic
	via        *via.Memory
	handle     uint32
	start      uint64 // application address
	size       uint64
	change     sync.Mutex // held while the attributes change
	attributes atomic.Pointer[memoryAttributes]
	gone       atomic.Bool
	// built are the descriptors that were posted from the region so far, by the multiple
	// of datasheet.DescriptorAlign at which they stand; those of a page are in one piece.
	built []atomic.Pointer[[perPage]atomic.Pointer[via.Descriptor]]
}

const (
	page    = 4096
	perPage = page / datasheet.DescriptorAlign
)

// register registers memory of the program's.
func (n *nic) register(b []byte, a memoryAttributes) (*region, error) {
	attributes, err := n.memoryAttributes(a)
	if err != nil {
		return nil, err
	}
	m, err := n.device.via.Register(n.ctx, b, attributes)
	if err != nil {
		return nil, err
	}
	r := &region{nic: n, via: m, handle: m.Handle(), start: m.Address(), size: uint64(m.Size())}
	r.built = make([]atomic.Pointer[[perPage]atomic.Pointer[via.Descriptor]], (r.start+r.size-1)/page-r.start/page+1)
	r.attributes.Store(&a)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, via.ErrInvalidParameter
	}
	n.regions.Store(r.handle, r)
	return r, nil
}

// findRegion returns the region that was registered at address with handle.
func (n *nic) findRegion(address uint64, handle uint32) (*region, error) {
	if r, ok := n.regions.Load(handle); ok && r.(*region).start == address {
		return r.(*region), nil
	}
	return nil, via.ErrInvalidParameter
}

// setAttributes changes ptag and rights.
func (r *region) setAttributes(a memoryAttributes) error {
	attributes, err := r.nic.memoryAttributes(a)
	if err != nil {
		return err
	}
	r.change.Lock()
	defer r.change.Unlock()
	if err := r.via.SetAttributes(r.nic.ctx, attributes); err != nil {
		return err
	}
	r.attributes.Store(&a)
	return nil
}

// end deregisters the region.
func (r *region) end(ctx context.Context) error {
	if err := r.via.Close(ctx); err != nil {
		return err
	}
	r.gone.Store(true)
	r.nic.regions.Delete(r.handle)
	return nil
}

// descriptor returns the descriptor at an application address; nil if there is no room
// for one in the region, or not at a multiple of datasheet.DescriptorAlign.
func (r *region) descriptor(address uint64) *via.Descriptor {
	offset := address - r.start
	if address < r.start || offset >= r.size || address%datasheet.DescriptorAlign != 0 {
		return nil
	}
	part := &r.built[address/page-r.start/page]
	of := part.Load()
	if of == nil {
		part.CompareAndSwap(nil, new([perPage]atomic.Pointer[via.Descriptor]))
		of = part.Load()
	}
	place := &of[address%page/datasheet.DescriptorAlign]
	d := place.Load()
	if d == nil {
		built, err := r.via.DescriptorAt(int(offset))
		if err != nil {
			return nil
		}
		// There is one descriptor at an address: it knows whether it is posted.
		place.CompareAndSwap(nil, built)
		d = place.Load()
	}
	return d
}
