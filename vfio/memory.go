package vfio

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/round"
)

// HugePolicy says whether DMA memory comes from huge pages.
type HugePolicy int

const (
	// HugeAuto takes huge pages for allocations of at least one of them while
	// the kernel has free ones, and normal pages otherwise.
	HugeAuto HugePolicy = iota
	// HugeNever takes normal pages.
	HugeNever
	// HugeRequire fails if there are not enough free huge pages.
	HugeRequire
)

// MemoryOptions are choices of AllocMemory. The zero value is good.
type MemoryOptions struct {
	Huge HugePolicy
}

// Memory is memory for DMA. It lies outside the Go heap. What AllocMemory returns is
// shared (so that a device in another process can map its file descriptor), is present
// from the start, does not move and cannot shrink. Methods may be called from several
// goroutines.
type Memory struct {
	b      []byte
	page   uint64
	locked bool
	fd     int

	foreign bool // the program's own, see ForeignMemory

	mu     sync.Mutex
	closed atomic.Bool
	moved  atomic.Bool // the pages are of another file than fd
}

// maxMemory keeps sizes far from wrapping when they are rounded up: no address
// space of a supported processor is larger.
const maxMemory = 1 << 56

// AllocMemory allocates zeroed memory of size bytes, rounded up to whole pages.
// Pages are locked if the process may do that, see Locked. Every error wraps
// ErrNoDMAMemory; size 0 also wraps ErrBadSize.
func AllocMemory(size uint64, o MemoryOptions) (*Memory, error) {
	if size == 0 {
		return nil, memoryError(size, ErrBadSize, "ask for at least one byte")
	}
	if size > maxMemory {
		return nil, memoryError(size, unix.ENOMEM, "no machine has that much")
	}
	stock, err := lastStock.forAlloc(size, o.Huge)
	if err != nil {
		return nil, memoryError(size, err, "how much there is cannot be read: check ulimit -n")
	}
	switch o.Huge {
	case HugeRequire:
		m, err := allocHuge(size, stock)
		if err != nil {
			return nil, memoryError(size, err, hugeHint(size, stock))
		}
		return m, nil
	case HugeAuto:
		if stock.hugePage != 0 && size >= stock.hugePage {
			// Anything that goes wrong here, normal pages may still do.
			if m, err := allocHuge(size, stock); err == nil {
				return m, nil
			}
		}
	}
	page := uint64(os.Getpagesize())
	if size = round.Up(size, page); size > stock.available {
		return nil, memoryError(size, unix.ENOMEM,
			fmt.Sprintf("%d bytes are available to this process", stock.available))
	}
	m, err := allocFile(size, page, 0)
	if err != nil {
		return nil, memoryError(size, err, "check free memory, the limits of the control group and ulimit -v, -n")
	}
	return m, nil
}

func memoryError(size uint64, err error, hint string) error {
	return &Error{Op: fmt.Sprintf("allocate %d bytes of DMA memory", size), Err: fmt.Errorf("%w: %w", ErrNoDMAMemory, err), Hint: hint}
}

func hugeHint(size uint64, s memoryStock) string {
	if s.hugePage == 0 {
		return "this kernel has no huge pages"
	}
	need := round.Up(size, s.hugePage) / s.hugePage
	return fmt.Sprintf("%d free huge pages of %d bytes, %d needed: sysctl vm.nr_hugepages", s.hugeFree, s.hugePage, need)
}

func allocHuge(size uint64, s memoryStock) (*Memory, error) {
	if s.hugePage == 0 {
		return nil, ErrNotSupported
	}
	size = round.Up(size, s.hugePage)
	if size/s.hugePage > s.hugeFree {
		return nil, unix.ENOMEM
	}
	return allocFile(size, s.hugePage, unix.MFD_HUGETLB)
}

// allocFile makes, fills and maps an anonymous file of size bytes, a multiple
// of page.
func allocFile(size, page uint64, flags int) (*Memory, error) {
	if size > math.MaxInt {
		return nil, unix.ENOMEM
	}
	fd, b, err := memfile.Map("dma", size, memfile.Options{Seals: memfile.Sealed, Filled: true, Flags: flags})
	if err != nil {
		return nil, err
	}
	return &Memory{b: b, page: page, fd: fd, locked: unix.Mlock(b) == nil}, nil
}

// Bytes returns the memory; nil after Close. Slices of it must not be used
// after Close.
func (m *Memory) Bytes() []byte {
	if m.closed.Load() {
		return nil
	}
	return m.b
}

// Size returns the size in bytes, a multiple of PageSize.
func (m *Memory) Size() uint64 { return uint64(len(m.b)) }

// PageSize returns the size in bytes of the pages that the memory is made of.
func (m *Memory) PageSize() uint64 { return m.page }

// Locked reports whether the pages are locked into memory. If not, the process
// may not lock that much (RLIMIT_MEMLOCK). A kernel back end pins the pages
// itself; other processes and emulated devices do not mind.
func (m *Memory) Locked() bool { return m.locked }

// FD returns the descriptor of the file behind the memory, -1 after Close,
// between Move and MoveBack, and of ForeignMemory. It belongs to the memory: duplicate it to keep it. The file is sealed so that it
// stays as long as it is. Before another process gets it, it is to be sealed
// against more seals (F_SEAL_SEAL) too, or that process could keep others from
// mapping it.
func (m *Memory) FD() int {
	if m.closed.Load() || m.moved.Load() {
		return -1
	}
	return m.fd
}

// Close unmaps the memory and gives it back, but for ForeignMemory. The device must not be able to
// access it any more. Closing again does nothing.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Swap(true) || m.foreign {
		return nil
	}
	err := errors.Join(os.NewSyscallError("munmap", unix.Munmap(m.b)), os.NewSyscallError("close", unix.Close(m.fd)))
	if err != nil {
		return &Error{Op: "close DMA memory", Err: err}
	}
	return nil
}
