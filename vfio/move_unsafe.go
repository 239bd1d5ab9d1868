package vfio

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Move is for back ends whose device reaches one file only: it has the memory be
// that file's from offset on, a multiple of PageSize, with the same content at the
// same virtual address. What is written while Move runs may be lost. FD returns -1
// until MoveBack. Move fails with ErrClosed, with ErrMisaligned, of ForeignMemory with
// ErrNotSupported, with ErrIOVAInUse if
// the memory is moved already, and with an errno.
func (m *Memory) Move(fd int, offset uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed.Load():
		return &Error{Op: "move memory", Err: ErrClosed}
	case m.foreign:
		return &Error{Op: "move memory", Err: ErrNotSupported, Hint: "take memory from AllocMemory"}
	case m.moved.Load():
		return &Error{Op: "move memory", Err: ErrIOVAInUse, Hint: "a device of this kind has it already: give each device memory of its own"}
	case offset%m.page != 0 || offset > math.MaxInt64:
		return &Error{Op: "move memory", Err: ErrMisaligned}
	}
	if err := m.replace(fd, int64(offset)); err != nil {
		return &Error{Op: "move memory", Err: err}
	}
	m.moved.Store(true)
	return nil
}

// MoveBack undoes Move; the content stays. It does nothing if the memory is closed or
// was not moved.
func (m *Memory) MoveBack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() || !m.moved.Load() {
		return nil
	}
	if err := m.replace(m.fd, 0); err != nil {
		return &Error{Op: "move memory back", Err: err}
	}
	m.moved.Store(false)
	return nil
}

// replace copies the content to a file and maps the file where the memory is, in one
// step: a reader of the memory finds one or the other.
func (m *Memory) replace(fd int, offset int64) error {
	size := uintptr(len(m.b))
	p, err := unix.MmapPtr(fd, offset, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	copy(unsafe.Slice((*byte)(p), size), m.b)
	if err := unix.MunmapPtr(p, size); err != nil {
		return os.NewSyscallError("munmap", err)
	}
	at := unsafe.Pointer(unsafe.SliceData(m.b))
	if _, err := unix.MmapPtr(fd, offset, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if m.locked { // the lock went with the pages; what could be locked then can be now
		_ = unix.Mlock(m.b)
	}
	return nil
}
