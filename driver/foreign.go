package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// foreign is memory of the program's own that the device can reach, see RegisterMemory.
// A page is mapped for the device once, however many registrations it is part of.
type foreign struct {
	mu      sync.Mutex // held while something is mapped or unmapped
	span    uint64     // bytes of a window, a power of two
	windows []*window
	// total and largest are the bytes of all ranges of bus addresses, and of one.
	total, largest uint64
}

// window is a range of application addresses that has bus addresses. What is mapped of
// it is at the same distance from its start in both, so that a region is in one piece
// on the bus even if its pages were mapped for different registrations.
type window struct {
	first, size, iova uint64
	pieces            []*piece // by address
}

// piece is mapped at once. One without references could not be unmapped, and stays
// until that succeeds or the NIC is closed.
type piece struct {
	mem   *vfio.Memory
	first uint64
	flags vfio.DMAFlags
	refs  int
}

func (p *piece) end() uint64 { return p.first + p.mem.Size() }

// shares is the number of windows that fit into the largest range of bus addresses. Few are in
// use: a program's heap and its mappings are each in one part of its addresses. A range
// that crosses the border of two has a window of its own.
const shares = 64

// hugePage: application and bus addresses are equal modulo this, so that an IOMMU can
// use large pages where the kernel has them.
const hugePage = 2 << 20

func (f *foreign) init(ranges []vfio.IOVARange) {
	for _, r := range ranges {
		if r.Last > r.First {
			size := r.Last - r.First + min(1, math.MaxUint64-(r.Last-r.First))
			f.total += min(size, math.MaxUint64-f.total)
			f.largest = max(f.largest, size)
		}
	}
	f.span = 1 << (max(bits.Len64(f.largest/shares), 22) - 1)
}

// holdForeign maps the pages that b lies in, unless they are mapped. It returns the bus
// address of b, whether the device may write there, and what undoes it.
func (n *NIC) holdForeign(ctx context.Context, b []byte) (iova uint64, writable bool, drop func() error, err error) {
	if n.physical != nil {
		return 0, false, nil, fmt.Errorf("%w: there is no IOMMU, and normal pages may move", descriptors.ErrNotSupported)
	}
	f := &n.foreign
	f.mu.Lock()
	defer f.mu.Unlock()
	pages, first := wholePages(b)
	end := first + uint64(len(pages))
	w, err := n.openWindow(first, end)
	if err != nil {
		return 0, false, nil, err
	}
	var held []*piece
	writable = true
	for at := first; at < end; {
		i, _ := slices.BinarySearchFunc(w.pieces, at, func(p *piece, at uint64) int {
			if p.end() <= at {
				return -1
			}
			return 1
		})
		if i < len(w.pieces) && w.pieces[i].first <= at && w.pieces[i].refs == 0 && !slices.Contains(held, w.pieces[i]) {
			if err := n.unmapPiece(w, w.pieces[i]); err != nil {
				return 0, false, nil, errors.Join(err, n.trim(w, held))
			}
			continue
		}
		if i == len(w.pieces) || w.pieces[i].first > at {
			to := end
			if i < len(w.pieces) {
				to = min(to, w.pieces[i].first)
			}
			p, err := n.mapPiece(ctx, w, at, pages[at-first:to-first])
			if err != nil {
				return 0, false, nil, errors.Join(err, n.trim(w, held))
			}
			w.pieces = slices.Insert(w.pieces, i, p)
		}
		p := w.pieces[i]
		held = append(held, p)
		writable = writable && p.flags&vfio.DMAWrite != 0
		at = p.end()
	}
	for _, p := range held {
		p.refs++
	}
	return w.iova + addressOf(b) - w.first, writable, func() error { return n.dropForeign(w, held) }, nil
}

// openWindow finds a window that holds all addresses from first to end, or makes one.
// foreign.mu is held.
func (n *NIC) openWindow(first, end uint64) (*window, error) {
	f := &n.foreign
	for _, w := range f.windows {
		if first >= w.first && end-w.first <= w.size {
			return w, nil
		}
	}
	w := &window{first: first &^ (f.span - 1), size: f.span}
	var err error = vfio.ErrNoIOVA
	if end-w.first <= w.size {
		w.iova, err = n.iovas.Alloc(w.size, min(w.size, hugePage))
	}
	if err != nil {
		*w = window{first: first, size: end - first}
		if w.iova, err = n.iovas.Alloc(w.size, 0); err != nil {
			return nil, err
		}
	}
	f.windows = append(f.windows, w)
	return w, nil
}

// mapPiece maps pages, which are at first and in no piece.
func (n *NIC) mapPiece(ctx context.Context, w *window, first uint64, pages []byte) (*piece, error) {
	mem, flags, err := vfio.ForeignMemory(pages)
	switch {
	case errors.Is(err, vfio.ErrGoHeap):
		return nil, fmt.Errorf("%w: %w", ErrNotDMAMemory, err)
	case errors.Is(err, vfio.ErrNotMapped):
		return nil, fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, err)
	case err != nil:
		return nil, err
	}
	if err := n.bound(ctx, timeout, func() error { return n.dev.MapDMA(mem, w.iova+first-w.first, flags) }); err != nil {
		return nil, err
	}
	return &piece{mem: mem, first: first, flags: flags}, nil
}

// dropForeign undoes holdForeign. The device must have said that it does not use the
// memory any more.
func (n *NIC) dropForeign(w *window, held []*piece) error {
	n.foreign.mu.Lock()
	defer n.foreign.mu.Unlock()
	for _, p := range held {
		p.refs--
	}
	return n.trim(w, held)
}

// trim unmaps the unused parts of some pieces, and gives back a window that
// is empty. foreign.mu is held.
func (n *NIC) trim(w *window, pieces []*piece) error {
	var errs []error
	for _, p := range pieces {
		if p.refs == 0 {
			errs = append(errs, n.unmapPiece(w, p))
		}
	}
	if len(w.pieces) == 0 {
		f := &n.foreign
		f.windows = slices.DeleteFunc(f.windows, func(other *window) bool { return other == w })
		errs = append(errs, n.iovas.Free(w.iova, w.size))
	}
	return errors.Join(errs...)
}

// unmapPiece takes a piece away from the device. The memory stays the program's.
func (n *NIC) unmapPiece(w *window, p *piece) error {
	if err := n.dev.UnmapDMA(w.iova+p.first-w.first, p.mem.Size()); err != nil {
		return err
	}
	w.pieces = slices.DeleteFunc(w.pieces, func(other *piece) bool { return other == p })
	return p.mem.Close()
}

// closeForeign takes all foreign memory away from a device that has been stopped.
func (n *NIC) closeForeign() error {
	f := &n.foreign
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, w := range f.windows {
		for _, p := range slices.Clone(w.pieces) {
			errs = append(errs, n.unlessGone(n.unmapPiece(w, p)))
		}
	}
	return errors.Join(errs...)
}
