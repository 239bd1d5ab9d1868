package shm

import (
	"fmt"
	"os"
	"runtime"
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

// mapping is mapped memory that more than one goroutine knows of. What the data path holds when a port is closed
// cannot be unmapped under it: it is when no caller can reach the port any more.
type mapping struct {
	number  uint32 // of the wire that a connection's file is
	cleanup runtime.Cleanup
	mu      sync.Mutex
	mem     []byte // nil once it is unmapped
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
	if m.mem != nil {
		m.cleanup.Stop()
		munmap(m.mem)
		m.mem = nil
	}
}

// munmap ends a mapping of ours, which cannot fail.
func munmap(mem []byte) { _ = unix.Munmap(mem) }

// mapFile maps a part of a file.
func mapFile(fd int, offset int64, size, protection, flags int) (*mapping, error) {
	b, err := unix.Mmap(fd, offset, size, protection, unix.MAP_SHARED|flags)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, os.NewSyscallError("mmap", err))
	}
	m := &mapping{mem: b}
	m.cleanup = runtime.AddCleanup(m, munmap, b)
	return m, nil
}

// create makes a file in memory for peers, of size bytes, and maps it.
func create(size, seals int) (fd int, m *mapping, err error) {
	if fd, err = memfile.Create("shm", uint64(size), memfile.Options{Seals: seals, Filled: true}); err != nil {
		return -1, nil, err
	}
	if m, err = mapFile(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_POPULATE); err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, m, nil
}

// mapWhole maps a file of the peer's, of size bytes, all pages of which have to be there for good. what is what it
// holds. A file that cannot be mapped is no mapping, and no error: the wire does without.
func mapWhole(fd, size, protection int, what string) (*mapping, error) {
	if whole, err := checkFile(fd, unix.F_SEAL_SHRINK, uint64(size)); err != nil || !whole {
		return nil, broken("pages of "+what, 0, "all of them in a file that is sealed against shrinking")
	}
	m, _ := mapFile(fd, 0, size, protection, unix.MAP_POPULATE)
	return m, nil
}

// mapRings maps the file of a connection, which is of size bytes.
func mapRings(fd, size int) (*mapping, error) {
	if _, err := checkFile(fd, memfile.Sealed, uint64(size)); err != nil {
		return nil, err
	}
	// A hole in a file of huge pages could not be filled if there are none left.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: its file is not made of normal pages", ErrMemory)
	}
	return mapFile(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_POPULATE)
}
