package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/vfio/mmio"
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
	parts  []part
	closed bool
}

// part is a mapped part of a region.
type part struct {
	vfio.Area
	m *vfio.Mapping
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
	if info.Flags&vfio.RegionMmap == 0 || info.Size == 0 {
		return r, nil
	}
	areas := info.Sparse
	if len(areas) == 0 {
		areas = []vfio.Area{{Size: info.Size}}
	}
	page := uint64(os.Getpagesize())
	for _, a := range areas {
		if a.Size == 0 || a.Offset%page != 0 || a.Size%page != 0 || a.Offset > info.Size || a.Size > info.Size-a.Offset {
			continue
		}
		// What cannot be mapped after all is trapped.
		m, err := dev.MapRegion(index, a.Offset, a.Size)
		if err != nil {
			continue
		}
		if uint64(len(m.Bytes())) < a.Size {
			r.close()
			return nil, errors.Join(fmt.Errorf("%w: %#x bytes at %#x were asked for, fewer are mapped", ErrProtocol, a.Size, a.Offset), m.Close())
		}
		r.parts = append(r.parts, part{a, m})
	}
	return r, nil
}

// pointer returns the register at offset, or nil if it is trapped. The pointer
// dies with the region.
func (r *region) pointer(offset uint64) *uint32 {
	for _, p := range r.parts {
		if offset >= p.Offset && offset-p.Offset < p.Size {
			reg, err := p.m.Register32(offset - p.Offset)
			if err != nil {
				return nil
			}
			return reg
		}
	}
	return nil
}

func (r *region) read32(offset uint64) (uint32, error) {
	return r.read32Context(context.Background(), offset)
}

// read32Context is read32 that ends with a context, where it can be made to wait.
func (r *region) read32Context(ctx context.Context, offset uint64) (uint32, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return 0, ErrClosed
	}
	if p := r.pointer(offset); p != nil {
		return mmio.Read32(p), nil
	}
	var b [4]byte
	var err error
	if r.remote != nil {
		err = r.remote.ReadRegionContext(ctx, r.index, offset, b[:])
	} else {
		err = r.dev.ReadRegion(r.index, offset, b[:])
	}
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

func (r *region) write32(offset uint64, v uint32) error {
	return r.write32Context(context.Background(), offset, v)
}

// write32Context is write32 that ends with a context, where it can be made to wait.
// What is written may get there all the same.
func (r *region) write32Context(ctx context.Context, offset uint64, v uint32) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	if p := r.pointer(offset); p != nil {
		mmio.Write32(p, v)
		return nil
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	if r.remote != nil {
		return r.remote.WriteRegionContext(ctx, r.index, offset, b[:])
	}
	return r.dev.WriteRegion(r.index, offset, b[:])
}

// read copies from the region, through a mapping that holds all of it if there
// is one.
func (r *region) read(offset uint64, p []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	if b := r.window(offset, len(p)); b != nil {
		copy(p, b)
		return nil
	}
	return r.dev.ReadRegion(r.index, offset, p)
}

func (r *region) write(offset uint64, p []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	if b := r.window(offset, len(p)); b != nil {
		copy(b, p)
		mmio.FlushWriteCombining()
		return nil
	}
	return r.dev.WriteRegion(r.index, offset, p)
}

// window returns n mapped bytes at offset, or nil.
func (r *region) window(offset uint64, n int) []byte {
	for _, p := range r.parts {
		if offset >= p.Offset && offset-p.Offset <= p.Size && uint64(n) <= p.Size-(offset-p.Offset) {
			return p.m.Bytes()[offset-p.Offset:][:n]
		}
	}
	return nil
}

func (r *region) close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, p := range r.parts {
		errs = append(errs, p.m.Close())
	}
	r.parts = nil
	return errors.Join(errs...)
}
