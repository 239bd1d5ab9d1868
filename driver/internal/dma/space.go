// Package dma keeps what a device reaches of a program's memory: buffers of the driver's own, and
// memory of the program, which each registration maps for itself.
package dma

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Grace is the time that a remote device may take for what it is doing when the
// caller's context ends, and what cannot be left half done.
const Grace = 100 * time.Millisecond

// ErrGoHeap: no device can be given this memory, it is the Go heap's.
var ErrGoHeap = descriptors.ErrNotSupported.Finer("not memory for DMA")

// Space has the bus addresses of a device and what is mapped there. Methods may be called from
// several goroutines.
type Space struct {
	// Total and Largest are the bytes of all ranges of bus addresses, and of one.
	Total, Largest uint64

	dev vfio.Device
	// bound calls f, which a remote device may keep for ever. It gives the device up when the context has
	// ended and f goes on for longer than grace.
	bound    func(ctx context.Context, grace time.Duration, f func() error) error
	iovas    *vfio.IOVAAllocator
	physical vfio.Physical // nil behind an IOMMU

	mu      sync.Mutex           // guards what follows, and the references of buffers
	buffers map[*Buffer]struct{} // of the driver's own
	foreign map[*Buffer]struct{} // the program's own memory
}

// Buffer is memory that the device can reach.
type Buffer struct {
	*vfio.Memory
	IOVA   uint64
	before uint64 // bytes of bus addresses that were allocated before IOVA
	flags  vfio.DMAFlags
	refs   int // registrations of it, of the driver's own
}

// NewSpace returns the space of a device, with nothing in it.
func NewSpace(dev vfio.Device, bound func(context.Context, time.Duration, func() error) error) (*Space, error) {
	ranges, err := dev.IOVARanges()
	if err != nil {
		return nil, err
	}
	s := &Space{dev: dev, bound: bound, buffers: map[*Buffer]struct{}{}, foreign: map[*Buffer]struct{}{}, iovas: vfio.NewIOVAAllocator(ranges, uint64(os.Getpagesize()))}
	if p, ok := dev.(vfio.Physical); ok && p.Unguarded() {
		s.physical = p
	}
	for _, r := range ranges {
		if r.Last > r.First {
			size := r.Last - r.First + min(1, math.MaxUint64-(r.Last-r.First))
			s.Total += min(size, math.MaxUint64-s.Total)
			s.Largest = max(s.Largest, size)
		}
	}
	return s, nil
}

// Ring is Alloc for a ring of the driver's: of pages of the usual size.
func (s *Space) Ring(ctx context.Context, size uint64, flags vfio.DMAFlags) (*Buffer, error) {
	return s.Alloc(ctx, size, flags, vfio.MemoryOptions{Huge: vfio.HugeNever})
}

// Alloc allocates memory and maps it for the device.
func (s *Space) Alloc(ctx context.Context, size uint64, flags vfio.DMAFlags, o vfio.MemoryOptions) (*Buffer, error) {
	if s.physical != nil {
		o.Huge = vfio.HugeRequire
	}
	mem, err := vfio.AllocMemory(size, o)
	if err != nil {
		return nil, err
	}
	b := &Buffer{Memory: mem, flags: flags}
	if err := s.place(ctx, b, mem.PageSize(), s.buffers); err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return b, nil
}

// Free takes memory away from the device and frees it. The device must have
// said that it does not use it any more, or have been reset. If it cannot be
// taken away it is kept until Close.
func (s *Space) Free(b *Buffer) error {
	if err := s.dev.UnmapDMA(b.IOVA, b.Size()); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.buffers, b)
	delete(s.foreign, b)
	s.mu.Unlock()
	return errors.Join(s.displace(b), b.Close())
}

// place chooses a bus address for b that equals its application address modulo align, if b.before says by how
// much that is more than a multiple, maps b there, and notes it in list. Without an IOMMU there is no choice.
func (s *Space) place(ctx context.Context, b *Buffer, align uint64, list map[*Buffer]struct{}) (err error) {
	if s.physical != nil {
		b.IOVA, err = s.physical.PhysicalAddress(b.Memory)
	} else {
		b.IOVA, err = s.iovas.Alloc(b.before+b.Size(), align)
		b.IOVA += b.before
	}
	if err != nil {
		return err
	}
	if err := s.bound(ctx, Grace, func() error { return s.dev.MapDMA(b.Memory, b.IOVA, b.flags) }); err != nil {
		return errors.Join(err, s.displace(b))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list[b] = struct{}{}
	return nil
}

// displace gives back the bus addresses of b.
func (s *Space) displace(b *Buffer) error {
	if s.physical != nil {
		return nil
	}
	return s.iovas.Free(b.IOVA-b.before, b.before+b.Size())
}

// Share lets Reach find b, and returns what ends the first use of it: the buffer is freed with the last.
func (s *Space) Share(b *Buffer) (drop func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.refs = 1
	return func() error { return s.drop(b) }
}

// Reached is memory that the device can reach until Drop is called.
type Reached struct {
	IOVA     uint64
	Writable bool // the device may write there
	Foreign  bool // it is none of Alloc's
	Drop     func() error
}

// Reach makes sure that the device reaches b, which is not empty: a part of a buffer that is shared, or memory of
// the program's own outside the Go heap.
func (s *Space) Reach(ctx context.Context, b []byte) (Reached, error) {
	// Before the address is looked at: pages around an object of the heap say nothing.
	if vfio.OnGoHeap(b) {
		return Reached{}, fmt.Errorf("%w: %w", ErrGoHeap, vfio.ErrGoHeap)
	}
	buf, err := s.hold(AddressOf(b), uint64(len(b)))
	if err != nil {
		return Reached{}, err
	}
	drop, foreign := s.drop, buf == nil
	if foreign {
		if buf, err = s.mapForeign(ctx, b); err != nil {
			return Reached{}, err
		}
		drop = s.Free
	}
	return Reached{IOVA: buf.IOVA + (AddressOf(b) - buf.Address()), Writable: buf.flags&vfio.DMAWrite != 0, Foreign: foreign,
		Drop: func() error { return drop(buf) }}, nil
}

// hugePage: application and bus addresses of large memory are equal modulo this, so that an IOMMU can
// use large pages where the kernel has them.
const hugePage = 2 << 20

// mapForeign maps the pages that b lies in, which may be mapped for other registrations too.
func (s *Space) mapForeign(ctx context.Context, b []byte) (*Buffer, error) {
	if s.physical != nil {
		return nil, fmt.Errorf("%w: there is no IOMMU, and normal pages may move", descriptors.ErrNotSupported)
	}
	pages, first := WholePages(b)
	mem, flags, err := vfio.ForeignMemory(pages)
	switch {
	case errors.Is(err, vfio.ErrNotMapped):
		return nil, fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, err)
	case err != nil:
		return nil, err
	}
	m, align := &Buffer{Memory: mem, flags: flags}, uint64(0)
	if mem.Size() >= hugePage {
		m.before, align = first%hugePage, hugePage
	}
	if err := s.place(ctx, m, align, s.foreign); err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return m, nil
}

// hold finds the buffer that all of the given range lies in, and keeps it from
// being freed. It returns nil if no part of the range lies in memory of this driver's.
func (s *Space) hold(address, size uint64) (*Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.buffers {
		first := b.Address()
		switch {
		case address >= first+b.Size() || address+size <= first:
		case b.refs > 0 && address >= first && size <= b.Size()-(address-first):
			b.refs++
			return b, nil
		default:
			return nil, fmt.Errorf("%w: %#x bytes at %#x are in part memory of the driver's own", descriptors.ErrInvalidParameter, size, address)
		}
	}
	return nil, nil
}

// drop undoes hold, and frees the buffer if that was the last hold.
func (s *Space) drop(b *Buffer) error {
	s.mu.Lock()
	b.refs--
	last := b.refs == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.Free(b)
}

// Close takes all memory away from a device that has been stopped, and frees the buffers. Memory that
// the device cannot be kept from is not freed: another program could get it next. The errors of taking away go through
// filter.
func (s *Space) Close(filter func(error) error) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, list := range []map[*Buffer]struct{}{s.buffers, s.foreign} {
		for b := range list {
			err := filter(s.dev.UnmapDMA(b.IOVA, b.Size()))
			if err == nil {
				err = b.Close()
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
