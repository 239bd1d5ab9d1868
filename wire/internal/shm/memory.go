package shm

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
)

// checkFile checks that a file cannot be shrunk below end bytes. It reports
// whether all pages of it are there.
func checkFile(fd int, seals int, end uint64) (whole bool, err error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return false, fmt.Errorf("%w: it is no file in memory that can be sealed: %w", ErrMemory, os.NewSyscallError("fcntl", err))
	}
	if got&seals != seals {
		return false, fmt.Errorf("%w: its file has seals %#x, want %#x", ErrMemory, got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("fstat", err))
	}
	if st.Size < 0 || uint64(st.Size) < end {
		return false, fmt.Errorf("%w: its file has %d bytes, want %d", ErrMemory, st.Size, end)
	}
	const block = 512 // stat(2)
	return uint64(st.Blocks)*block >= uint64(st.Size), nil
}

// mapping is mapped memory that more than one goroutine knows of.
type mapping struct {
	of     *mappings
	number uint32 // of the wire that a connection's file is
	mu     sync.Mutex
	mem    []byte // nil once it is unmapped
}

// use calls f while the memory is mapped, or not at all.
func (m *mapping) use(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem != nil {
		f()
	}
}

func (m *mapping) unmap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil {
		return
	}
	_ = unix.Munmap(m.mem)
	m.mem = nil
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	delete(m.of.all, m)
}

// mappings are the mappings of a port that have not been unmapped. It outlives
// the port.
type mappings struct {
	mu  sync.Mutex
	all map[*mapping]struct{}
}

// mapFile maps a part of a file.
func (m *mappings) mapFile(fd int, offset int64, size, protection, flags int) (*mapping, error) {
	b, err := unix.Mmap(fd, offset, size, protection, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("mmap", err))
	}
	n := &mapping{of: m, mem: b}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[*mapping]struct{}{}
	}
	m.all[n] = struct{}{}
	return n, nil
}

// create makes a file in memory for peers, of size bytes, and maps it.
func (m *mappings) create(size, seals int) (fd int, n *mapping, err error) {
	if fd, err = memfile.Create("shm", uint64(size), memfile.Options{Seals: seals, Filled: true}); err != nil {
		return -1, nil, err
	}
	if n, err = m.mapFile(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_POPULATE); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, n, nil
}

func (m *mappings) unmapAll() {
	m.mu.Lock()
	all := m.all
	m.all = nil
	m.mu.Unlock()
	for n := range all {
		n.unmap()
	}
}

// mapRings maps the file of a connection, which is of size bytes.
func (m *mappings) mapRings(fd, size int) (*mapping, error) {
	if _, err := checkFile(fd, memfile.Sealed, uint64(size)); err != nil {
		return nil, err
	}
	// A hole in a file of huge pages could not be filled if there are none left.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: its file is not made of normal pages", ErrMemory)
	}
	return m.mapFile(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_POPULATE)
}
