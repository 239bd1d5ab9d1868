package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
)

// region is a BAR: mapped where the device allows it, trapped (an access is a
// call) elsewhere.
type region struct {
	dev    vfio.Device
	remote vfio.Remote // nil: accesses do not wait for another process
	index  int
	size   uint64

	// mu is held for reading during an access, for writing while unmapping.
	mu     sync.RWMutex
	mapped vfio.MappedBAR
	closed bool
}

// openRegion finds a region and maps what can be mapped of it. A region that
// the device does not have has size 0.
func openRegion(dev vfio.Device, index int) (*region, error) {
	info, err := dev.Region(index)
	if err != nil {
		return nil, err
	}
	r := &region{dev: dev, index: index, size: info.Size}
	r.remote, _ = dev.(vfio.Remote)
	if r.mapped, err = vfio.MapBAR(dev, index, info); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return r, nil
}

// pointer returns the register at offset, or nil if it is trapped. The pointer
// dies with the region.
func (r *region) pointer(offset uint64) *uint32 { return r.mapped.Register(offset) }

// read32 ends with the context, where it can be made to wait.
func (r *region) read32(ctx context.Context, offset uint64) (v uint32, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return 0, descriptors.ErrClosed
	}
	if p := r.pointer(offset); p != nil {
		return mmio.Read32(p), nil
	}
	var b [4]byte
	if r.remote != nil {
		err = r.remote.ReadRegionContext(ctx, r.index, offset, b[:])
	} else {
		err = r.dev.ReadRegion(r.index, offset, b[:])
	}
	return binary.LittleEndian.Uint32(b[:]), err
}

// write32 ends with the context, where it can be made to wait. What is written may get there all
// the same.
func (r *region) write32(ctx context.Context, offset uint64, v uint32) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return descriptors.ErrClosed
	}
	if p := r.pointer(offset); p != nil {
		mmio.Write32(p, v)
		return nil
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	return r.trap(ctx, offset, b[:])
}

// trap writes to a part of the region that is not mapped.
func (r *region) trap(ctx context.Context, offset uint64, p []byte) error {
	if r.remote != nil {
		return r.remote.WriteRegionContext(ctx, r.index, offset, p)
	}
	return r.dev.WriteRegion(r.index, offset, p)
}

// read copies from the region, through a mapping that holds all of it if there
// is one.
func (r *region) read(offset uint64, p []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return descriptors.ErrClosed
	}
	if b := r.mapped.Window(offset, len(p)); b != nil {
		copy(p, b)
		return nil
	}
	return r.dev.ReadRegion(r.index, offset, p)
}

func (r *region) write(offset uint64, p []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return descriptors.ErrClosed
	}
	if b := r.mapped.Window(offset, len(p)); b != nil {
		copy(b, p)
		mmio.FlushWriteCombining()
		return nil
	}
	return r.dev.WriteRegion(r.index, offset, p)
}

func (r *region) close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.mapped.Close()
}
