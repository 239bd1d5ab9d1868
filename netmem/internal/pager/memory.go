package pager

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// ErrCut: the file of the memory is shorter than it was. A process of the mapping has ended it.
var ErrCut = errors.New("the file of the mapped memory was cut")

// Memory is the memory that mapper, pager and guard share.
type Memory struct {
	// File is the descriptor of the file that the mapper has mapped.
	File int
	// Object reports the faults.
	Object *userfault.Object
	// Base is where the mapper has it, Size how much of it in bytes.
	Base, Size uint64
}

// End makes every access to the memory a SIGBUS, and lets those who wait for pages meet it.
// It is called again after a while: a thread can be between the look at the file's length
// and the queue of those who wait (mm/shmem.c, shmem_get_folio_gfp; fs/userfaultfd.c).
func (m *Memory) End() error {
	err := unix.Ftruncate(m.File, 0)
	// The mapper may be gone, and then no thread waits.
	_ = m.Object.Wake(m.Base, m.Size)
	if err != nil {
		return fmt.Errorf("cut the file of the mapped memory: %w", err)
	}
	return nil
}

// Close closes both descriptors.
func (m *Memory) Close() error {
	return errors.Join(m.Object.Close(), unix.Close(m.File))
}

// Start starts a process of a mapping, with duplicates of descriptors, from 3 on in their order. Ctrl-C is for the
// application, which may still have something to write back.
func Start(process *exec.Cmd, fds ...int) error {
	for _, fd := range fds {
		file, err := duplicate(fd)
		if err != nil {
			return err
		}
		defer file.Close()
		process.ExtraFiles = append(process.ExtraFiles, file)
	}
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return process.Start()
}

// duplicate returns a second descriptor of a file.
func duplicate(fd int) (*os.File, error) {
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(second), "duplicate"), nil
}

// read copies from the file. It does not go through a mapping, where a file that the mapper
// has cut would end this process.
func (m *Memory) read(to []byte, at int64) error {
	for len(to) > 0 {
		n, err := unix.Pread(m.File, to, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read the mapped memory: %w", err)
		case n == 0:
			return ErrCut
		default:
			to, at = to[n:], at+int64(n)
		}
	}
	return nil
}

// punch frees what the file has at a place, and takes it from the mapper.
func (m *Memory) punch(at, length int64) error {
	for {
		err := unix.Fallocate(m.File, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("punch a page out of the mapped memory: %w", err)
		default:
			return nil
		}
	}
}

// Empty says that no page is there.
func (m *Memory) Empty() bool {
	_, err := unix.Seek(m.File, 0, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO)
}

// holds says whether the file has a page at a place.
func (m *Memory) holds(at int64) bool {
	found, err := unix.Seek(m.File, at, unix.SEEK_DATA)
	return err == nil && found == at
}
