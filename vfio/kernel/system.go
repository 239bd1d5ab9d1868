package kernel

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
)

// system has the calls of Linux that this package makes, besides reading the files of sysfs
// and proc. Errors are plain errnos.
type system interface {
	// open opens a node for reading and writing, a plain file for reading.
	open(name string, flags int) (int, error)
	close(fd int) error
	// ioctl passes a structure, which the kernel may change. It returns what the
	// kernel returned if that is not negative.
	ioctl(fd int, request uint32, arg []byte) (int, error)
	// ioctlNumber passes a number where other requests have a pointer.
	ioctlNumber(fd int, request uint32, arg uintptr) (int, error)
	read(fd int, p []byte, offset int64) (int, error)
	write(fd int, p []byte, offset int64) (int, error)
	// mmap maps a part of a device, shared, for reading and writing as asked.
	mmap(fd int, offset int64, size, prot int) ([]byte, error)
	munmap(b []byte) error
	// blind puts memory that reads as all ones in the place of a mapping.
	blind(b []byte) error
}

// linux is the real one.
type linux struct{}

func (linux) open(name string, flags int) (int, error) {
	return retry(func() (int, error) { return unix.Open(name, flags|unix.O_CLOEXEC, 0) })
}

func (linux) close(fd int) error {
	// Interrupted or not, the descriptor is gone afterwards (close(2)).
	if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

func (linux) read(fd int, p []byte, offset int64) (int, error) {
	return retry(func() (int, error) { return unix.Pread(fd, p, offset) })
}

func (linux) write(fd int, p []byte, offset int64) (int, error) {
	return retry(func() (int, error) { return unix.Pwrite(fd, p, offset) })
}

func (linux) mmap(fd int, offset int64, size, prot int) ([]byte, error) {
	return unix.Mmap(fd, offset, size, prot, unix.MAP_SHARED)
}

func (linux) munmap(b []byte) error { return unix.Munmap(b) }

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// onesSize is the size of the file of ones that mappings are replaced by, over
// and over.
const onesSize = 2 << 20

// onesFile makes a file that is full of ones.
func onesFile() (int, error) {
	fd, err := memfile.Create("gone", onesSize, memfile.Options{})
	if err != nil {
		return -1, err
	}
	ones := make([]byte, onesSize)
	for i := range ones {
		ones[i] = 0xff
	}
	if n, err := unix.Pwrite(fd, ones, 0); err != nil || n != len(ones) {
		unix.Close(fd)
		return -1, errors.Join(err, os.ErrInvalid)
	}
	return fd, nil
}
