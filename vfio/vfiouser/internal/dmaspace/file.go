package dmaspace

import (
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// fileID tells files apart. A file that is mapped keeps its inode number, so
// another cannot have it.
type fileID struct {
	device, inode uint64
	writable      bool
}

func identify(st *unix.Stat_t, flags vfio.DMAFlags) fileID {
	return fileID{uint64(st.Dev), st.Ino, flags&vfio.DMAWrite != 0}
}

// file is one mapping of a client's file. There is more than one of the same
// file if it has grown.
type file struct {
	id    fileID
	bytes []byte
	users int // ranges
}

// open returns a mapping of the file behind fd that holds range r, an old or a
// new one.
func (s *Space) open(r Range, fd int) (*file, error) {
	st, err := s.check(r, fd)
	if err != nil {
		return nil, err
	}
	id := identify(st, r.Flags)
	for _, f := range s.files[id] {
		if r.Offset+r.Size <= uint64(len(f.bytes)) {
			return f, nil
		}
	}
	size := uint64(st.Size)
	if s.count >= s.limits.Files {
		return nil, fmt.Errorf("%w: %d files", ErrFull, s.count)
	}
	if size > s.limits.Bytes || s.bytes > s.limits.Bytes-size || size > math.MaxInt {
		return nil, fmt.Errorf("%w: a file of %#x bytes after %#x, the limit is %#x", ErrFull, size, s.bytes, s.limits.Bytes)
	}
	protection := unix.PROT_READ
	if id.writable {
		protection |= unix.PROT_WRITE
	}
	// Huge pages are the client's to reserve.
	b, err := unix.Mmap(fd, 0, int(size), protection, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, os.NewSyscallError("mmap", err))
	}
	f := &file{id: id, bytes: b}
	s.files[id] = append(s.files[id], f)
	s.count++
	s.bytes += size
	return f, nil
}

// check looks at a file before it is mapped.
func (s *Space) check(r Range, fd int) (*unix.Stat_t, error) {
	bad := func(format string, a ...any) (*unix.Stat_t, error) {
		return nil, fmt.Errorf("%w: %w", ErrFile, fmt.Errorf(format, a...))
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return bad("%w", os.NewSyscallError("fcntl", err))
	}
	switch mode := flags & unix.O_ACCMODE; {
	case mode == unix.O_WRONLY, mode == unix.O_RDONLY && r.Flags&vfio.DMAWrite != 0:
		return bad("it is open for access mode %d, the range for %d", mode, r.Flags)
	}
	// A device must not wait for a disk, and still less for a file system that the
	// client itself serves.
	if !passedfd.IsMemory(fd) {
		return bad("it is not in memory")
	}
	// Sealed first: the size that is read then is one that stays.
	_ = memfile.Seal(fd, unix.F_SEAL_SHRINK) // if it takes seals
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return bad("%w", os.NewSyscallError("fstat", err))
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bad("it is no regular file: mode %#o", st.Mode)
	}
	if end := r.Offset + r.Size; st.Size < 0 || end > uint64(st.Size) {
		return bad("it has %#x bytes, the range ends at %#x", st.Size, end)
	}
	return &st, nil
}

// release gives back what one range has used.
func (s *Space) release(f *file) {
	if f == nil {
		return
	}
	if f.users--; f.users > 0 {
		return
	}
	s.count--
	s.bytes -= uint64(len(f.bytes))
	others := slices.DeleteFunc(s.files[f.id], func(o *file) bool { return o == f })
	if s.files[f.id] = others; len(others) == 0 {
		delete(s.files, f.id)
	}
	// It is a mapping that we made: this cannot fail.
	_ = unix.Munmap(f.bytes)
}
