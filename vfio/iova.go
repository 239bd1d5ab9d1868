package vfio

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"os"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/round"
)

// PlainIOVAs are the bus addresses that the least IOMMU that is found gives its users, with 39 bits of address: address 0
// stays free for "none", and writes to 0xfeexxxxx are interrupts (Intel SDM vol. 3, 11.11.1). What works with these works
// behind a kernel, too.
func PlainIOVAs() []IOVARange { return []IOVARange{{0x1000, 0xfedfffff}, {0xfef00000, 1<<39 - 1}} }

// String writes both ends.
func (r IOVARange) String() string { return fmt.Sprintf("%#x to %#x", r.First, r.Last) }

// CheckDMA is for back ends: it says why memory cannot be mapped at iova, and what helps. Ranges are sorted, and those that
// touch count as one; addresses and sizes are multiples of granule.
func CheckDMA(mem *Memory, iova uint64, flags DMAFlags, ranges []IOVARange, granule uint64) (hint string, err error) {
	if mem == nil || mem.Address() == 0 {
		return "the memory has been closed", ErrNoDMAMemory
	}
	size := mem.Size()
	first, last := iova, iova+size-1
	for _, r := range ranges {
		if first >= r.First && first <= r.Last && last > r.Last {
			first = r.Last + 1
		}
	}
	within := slices.ContainsFunc(ranges, func(r IOVARange) bool { return first >= r.First && last <= r.Last })
	switch {
	case flags == 0 || flags&^(DMARead|DMAWrite) != 0:
		return "use DMARead, DMAWrite or both", fmt.Errorf("%w: flags %#x", ErrNotSupported, uint32(flags))
	case iova%granule != 0 || size%granule != 0 || mem.Address()%granule != 0:
		return fmt.Sprintf("addresses and sizes are multiples of %#x here", granule), fmt.Errorf("%w: %#x bytes at IOVA %#x", ErrMisaligned, size, iova)
	case last < iova || !within:
		return fmt.Sprint("usable: ", ranges), fmt.Errorf("%w: %#x bytes at IOVA %#x", ErrIOVARange, size, iova)
	}
	return "", nil
}

// DivideIOVAs returns part number part, from 0, of as many equal ones as of says, in whole granules: for users of one
// address space who shall not choose the same addresses. Addresses below and above 4 GiB are divided separately, for
// devices that can send 32 bits only. What cannot be divided is left out.
func DivideIOVAs(ranges []IOVARange, part, of int, granule uint64) (list []IOVARange) {
	if of <= 1 {
		return slices.Clone(ranges)
	}
	for _, r := range ranges {
		for _, half := range []IOVARange{{0, 1<<32 - 1}, {1 << 32, math.MaxUint64}} {
			from, last := max(r.First, half.First), min(r.Last, half.Last)
			first := round.Up(from, granule)
			if first < from || first > last {
				continue
			}
			if each := (last - first + 1) / granule / uint64(of) * granule; each > 0 {
				first += uint64(part) * each
				list = append(list, IOVARange{first, first + (each - 1)})
			}
		}
	}
	return list
}

// IOVAAllocator hands out bus addresses for DMA mappings. It keeps no memory,
// only numbers. Methods may be called from several goroutines.
type IOVAAllocator struct {
	granule uint64
	mu      sync.Mutex
	free    []IOVARange       // sorted, apart from each other, in whole granules
	used    map[uint64]uint64 // size by address
}

// NewIOVAAllocator makes an allocator for the given ranges, which may come in
// any order and overlap; empty ones (Last < First) are ignored. Granule is the
// unit in which the device's memory management works: a power of two in bytes.
// Another number is rounded up to one; 0 means the processor's page size.
//
// Address 0 is never handed out: too many devices take it for "none".
func NewIOVAAllocator(ranges []IOVARange, granule uint64) *IOVAAllocator {
	switch {
	case granule == 0:
		granule = uint64(os.Getpagesize())
	case granule > 1<<63:
		granule = 1 << 63
	default:
		granule = 1 << bits.Len64(granule-1)
	}
	a := &IOVAAllocator{granule: granule, used: map[uint64]uint64{}}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(x, y IOVARange) int { return cmp.Compare(x.First, y.First) })
	for _, r := range sorted {
		a.add(r)
	}
	// Trimmed last: ranges that only together hold a granule have been joined.
	trimmed := a.free[:0]
	for _, r := range a.free {
		if r, ok := a.trim(r); ok {
			trimmed = append(trimmed, r)
		}
	}
	a.free = trimmed
	return a
}

// add appends r, which starts no earlier than the last free range.
func (a *IOVAAllocator) add(r IOVARange) {
	if r.Last < r.First {
		return
	}
	if n := len(a.free); n > 0 {
		last := &a.free[n-1]
		if last.Last == math.MaxUint64 || r.First <= last.Last+1 {
			last.Last = max(last.Last, r.Last)
			return
		}
	}
	a.free = append(a.free, r)
}

// trim cuts r to whole granules, without the one at address 0.
func (a *IOVAAllocator) trim(r IOVARange) (IOVARange, bool) {
	mask := a.granule - 1
	r.First = max(r.First, 1)
	if r.First > math.MaxUint64-mask {
		return r, false
	}
	r.First = (r.First + mask) &^ mask
	if r.Last&mask != mask {
		if r.Last < a.granule {
			return r, false
		}
		r.Last = (r.Last &^ mask) - 1
	}
	return r, r.First <= r.Last
}

// Alloc takes size bytes, rounded up to whole granules, at a multiple of align:
// a power of two, 0 for any. It hands out the lowest address that fits. It
// fails with ErrNoIOVA, ErrBadSize (size 0) or ErrMisaligned (align).
func (a *IOVAAllocator) Alloc(size, align uint64) (uint64, error) {
	fail := func(err error, hint string) (uint64, error) {
		return 0, &Error{Op: fmt.Sprintf("allocate %#x bytes of IOVA aligned to %#x", size, align), Err: err, Hint: hint}
	}
	switch {
	case size == 0:
		return fail(ErrBadSize, "ask for at least one byte")
	case align&(align-1) != 0:
		return fail(ErrMisaligned, "alignment is a power of two, or 0")
	case size > math.MaxUint64-(a.granule-1):
		return fail(ErrNoIOVA, "")
	}
	whole := a.round(size)
	align = max(align, a.granule)

	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range a.free {
		if r.First > math.MaxUint64-(align-1) {
			break
		}
		first := (r.First + align - 1) &^ (align - 1)
		if first > r.Last || r.Last-first < whole-1 {
			continue
		}
		a.take(i, first, first+whole-1)
		a.used[first] = whole
		return first, nil
	}
	return fail(ErrNoIOVA, "unmap memory, or map it in smaller pieces")
}

// take cuts first to last, both included, out of free range i.
func (a *IOVAAllocator) take(i int, first, last uint64) {
	r := a.free[i]
	var rest []IOVARange
	if r.First < first {
		rest = append(rest, IOVARange{r.First, first - 1})
	}
	if last < r.Last {
		rest = append(rest, IOVARange{last + 1, r.Last})
	}
	a.free = slices.Replace(a.free, i, i+1, rest...)
}

// Free gives back exactly what one Alloc returned: its address and its size. It
// fails with ErrNotMapped otherwise, and changes nothing.
func (a *IOVAAllocator) Free(iova, size uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	whole, ok := a.used[iova]
	if !ok || size == 0 || size > whole || a.round(size) != whole {
		return &Error{Op: fmt.Sprintf("free %#x bytes of IOVA at %#x", size, iova), Err: ErrNotMapped,
			Hint: "give the address and size of one Alloc"}
	}
	delete(a.used, iova)
	r := IOVARange{iova, iova + whole - 1}
	i, _ := slices.BinarySearchFunc(a.free, r, func(x, y IOVARange) int { return cmp.Compare(x.First, y.First) })
	a.free = slices.Insert(a.free, i, r)
	if i+1 < len(a.free) && a.free[i].Last+1 == a.free[i+1].First {
		a.free[i].Last = a.free[i+1].Last
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].Last+1 == a.free[i].First {
		a.free[i-1].Last = a.free[i].Last
		a.free = slices.Delete(a.free, i, i+1)
	}
	return nil
}

// round rounds size up to whole granules. It does not wrap: callers have
// checked.
func (a *IOVAAllocator) round(size uint64) uint64 {
	return (size + a.granule - 1) &^ (a.granule - 1)
}
