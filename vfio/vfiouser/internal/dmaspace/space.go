// Package dmaspace keeps the memory that a vfio-user client lets a device
// access: ranges of bus addresses, each of them a part of a file that the client
// has sent.
//
// The client is not trusted. It may map as many ranges as the limits allow in
// any order, and may send files that are not memory, that are too short, or that it
// cuts off later.
//
// Each file is mapped once, as a whole, however many ranges it backs: a guest
// with a virtual IOMMU maps its memory in pieces of 4 KiB. Pieces that are
// neighbours in a file are therefore neighbours in memory too.
package dmaspace

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/internal/ranges"
)

// Errors of Map and Inside, besides vfio.ErrIOVAInUse and vfio.ErrMisaligned.
var (
	// ErrFull: a limit is reached.
	ErrFull = errors.New("too much is mapped")
	// ErrFile: the file is no memory that can be mapped that way.
	ErrFile = errors.New("file is not suitable")
	// ErrCut: a range begins or ends within one that is mapped.
	ErrCut = errors.New("range cuts a mapping in two")
)

// PageSize is the granule of ranges in bytes.
const PageSize = 4096

// Limits bound what a client can make this process do.
type Limits struct {
	// Ranges is the number of ranges.
	Ranges int
	// Files is the number of files: each takes one memory mapping of this
	// process, of which the kernel allows 65530 (vm.max_map_count).
	Files int
	// Bytes is the size of all files together: address space of this process.
	Bytes uint64
}

// DefaultLimits are large for one device and leave room for twenty of them.
func DefaultLimits() Limits { return Limits{Ranges: 65535, Files: 2048, Bytes: 4 << 40} }

// Range is a request of a client.
type Range struct {
	// Address on the bus, and Size in bytes.
	Address, Size uint64
	// Offset in the file.
	Offset uint64
	Flags  vfio.DMAFlags
}

// First is Address.
func (r Range) First() uint64 { return r.Address }

// Last is the last address.
func (r Range) Last() uint64 { return r.Address + (r.Size - 1) }

// entry is a range with its memory.
type entry struct {
	Range
	window []byte
	file   *file // nil if there is no memory
}

// Space is the memory of one client. It is for one goroutine.
type Space struct {
	limits Limits
	ranges ranges.Table[*entry]
	files  map[fileID][]*file
	count  int    // files
	bytes  uint64 // of all files
}

// New makes an empty space.
func New(l Limits) *Space { return &Space{limits: l, files: map[fileID][]*file{}} }

// Map maps a range, backed by the file behind descriptor fd, and returns its
// memory. If fd is negative there is no memory that we could reach: the range is
// taken, and Map returns nil. The descriptor stays the caller's, and need not
// stay open.
//
// A range that is mapped already, exactly so, is mapped only once and no error;
// known is true then. Map fails with vfio.ErrIOVAInUse, vfio.ErrMisaligned,
// ErrFull or ErrFile, and changes nothing.
func (s *Space) Map(r Range, fd int) (window []byte, known bool, err error) {
	if r.Address%PageSize != 0 || r.Size%PageSize != 0 || r.Size == 0 || r.Offset%PageSize != 0 {
		return nil, false, fmt.Errorf("%w: %#x bytes at %#x, offset %#x", vfio.ErrMisaligned, r.Size, r.Address, r.Offset)
	}
	if r.Address > math.MaxUint64-(r.Size-1) || r.Offset > math.MaxUint64-r.Size {
		return nil, false, fmt.Errorf("%w: %#x bytes at %#x, offset %#x wrap", vfio.ErrIOVARange, r.Size, r.Address, r.Offset)
	}
	if old := s.ranges.Within(r.Address, r.Last()); len(old) > 0 {
		if old[0].Range == r && s.same(old[0], fd) {
			return old[0].window, true, nil
		}
		return nil, false, fmt.Errorf("%w: %#x to %#x", vfio.ErrIOVAInUse, r.Address, r.Last())
	}
	if len(s.ranges) >= s.limits.Ranges {
		return nil, false, fmt.Errorf("%w: %d ranges", ErrFull, len(s.ranges))
	}
	e := &entry{Range: r}
	if fd >= 0 {
		if e.file, err = s.open(r, fd); err != nil {
			return nil, false, err
		}
		e.file.users++
		e.window = e.file.bytes[r.Offset : r.Offset+r.Size : r.Offset+r.Size]
	}
	s.ranges.Insert(e)
	return e.window, false, nil
}

// same reports whether fd is the file of range e.
func (s *Space) same(e *entry, fd int) bool {
	if fd < 0 || e.file == nil {
		return fd < 0 && e.file == nil
	}
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && e.file.id == identify(&st, e.Flags)
}

// Inside returns how many ranges lie within first to last, both included, how
// many bytes they have and how many of these have memory. It fails with ErrCut
// if one lies there only in part.
func (s *Space) Inside(first, last uint64) (ranges int, bytes, memory uint64, err error) {
	within := s.ranges.Within(first, last)
	for _, e := range within {
		if e.Address < first || e.Last() > last {
			return 0, 0, 0, fmt.Errorf("%w: %#x to %#x, mapped is %#x to %#x", ErrCut, first, last, e.Address, e.Last())
		}
		bytes += e.Size
		memory += uint64(len(e.window))
	}
	return len(within), bytes, memory, nil
}

// Unmap ends the ranges within first to last, both included. Nothing may use
// their memory any more. It fails with ErrCut and then changes nothing.
func (s *Space) Unmap(first, last uint64) error {
	if _, _, _, err := s.Inside(first, last); err != nil {
		return err
	}
	for _, e := range s.ranges.Within(first, last) {
		s.release(e.file)
	}
	s.ranges.Remove(first, last)
	return nil
}

// Clear ends all ranges.
func (s *Space) Clear() {
	// All ranges lie within all addresses.
	_ = s.Unmap(0, math.MaxUint64)
}

// Size returns the numbers of ranges and of files.
func (s *Space) Size() (ranges, files int) { return len(s.ranges), s.count }
