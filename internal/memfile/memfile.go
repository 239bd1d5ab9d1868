// Package memfile makes files in memory.
package memfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Seals of files. Sealed ones stay as long as they are, so that no holder of a descriptor can take memory away
// that others have mapped. Final ones are that, and take no more seals.
const (
	Sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	Final  = Sealed | unix.F_SEAL_SEAL
)

// Options of a file. Filled ones have all their pages from the start: there is no bus error for want of one later.
type Options struct {
	Seals  int
	Filled bool
	Flags  int // besides MFD_CLOEXEC, such as MFD_HUGETLB
}

// Create makes a file of size bytes of zeros, which /proc shows as trapeze-NAME and which cannot be executed. It fails with
// an *os.SyscallError.
func Create(name string, size uint64, o Options) (fd int, err error) {
	flags := o.Flags | unix.MFD_CLOEXEC
	fd, err = unix.MemfdCreate("trapeze-"+name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, which may refuse files without it
		fd, err = unix.MemfdCreate("trapeze-"+name, flags|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	what := "ftruncate"
	err = unix.Ftruncate(fd, int64(size))
	// In pieces: a signal undoes the piece that it interrupts.
	const piece = 64 << 20
	for at := uint64(0); o.Filled && err == nil && at < size; {
		what = "fallocate"
		if err = unix.Fallocate(fd, 0, int64(at), int64(min(piece, size-at))); errors.Is(err, unix.EINTR) {
			err = nil
		} else {
			at += piece
		}
	}
	if err == nil && o.Seals != 0 {
		what = "seal"
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, o.Seals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError(what, err)
	}
	return fd, nil
}

// Seal gives a file seals that it has not yet. It fails, with an *os.SyscallError, for what is no file in memory too.
func Seal(fd, seals int) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil && got&seals != seals {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	return os.NewSyscallError("fcntl", err)
}

// Map is Create that also maps the file, for reading and writing.
func Map(name string, size uint64, o Options) (fd int, b []byte, err error) {
	if fd, err = Create(name, size, o); err != nil {
		return -1, nil, err
	}
	flags := unix.MAP_SHARED
	if o.Filled {
		flags |= unix.MAP_POPULATE
	}
	if b, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		unix.Close(fd)
		return -1, nil, os.NewSyscallError("mmap", err)
	}
	return fd, b, nil
}
