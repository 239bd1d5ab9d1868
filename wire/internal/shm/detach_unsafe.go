package shm

import (
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// detach replaces the pages of mem, a mapping of a file at an offset, by copies at the same virtual address. They are
// this process's alone. What the program writes meanwhile is kept: each page is copied by the kernel at the first
// store to the new mapping, which here changes nothing.
func detach(mem []byte, fd int, offset int64) error {
	const both = unix.PROT_READ | unix.PROT_WRITE
	at, size := unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))
	// The kernel unmaps the old pages before it finds that there is no memory for new ones: ask elsewhere first.
	probe, err := unix.MmapPtr(fd, offset, nil, size, both, unix.MAP_PRIVATE)
	if err == nil {
		err = unix.MunmapPtr(probe, size)
	}
	if err == nil {
		_, err = unix.MmapPtr(fd, offset, at, size, both, unix.MAP_PRIVATE|unix.MAP_FIXED)
		if err != nil {
			_, back := unix.MmapPtr(fd, offset, at, size, both, unix.MAP_SHARED|unix.MAP_FIXED)
			err = errors.Join(err, back)
		}
	}
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	for i := 0; i < len(mem); i += os.Getpagesize() {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&mem[i])), 0)
	}
	_ = unix.Mlock(mem) // the lock of the old mapping, if it had one
	return nil
}
