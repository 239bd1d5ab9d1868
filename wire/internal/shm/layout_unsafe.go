package shm

import (
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// detach replaces the pages of mem, a mapping of a file at an offset, by copies that are this process's alone, at
// the same virtual address. What the program writes meanwhile is kept: each page is copied by the kernel at the first
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

// wordsAt lays words over b, which is mapped memory: a multiple of 8 bytes that
// starts at one.
func wordsAt(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordSize)
}

// within returns where p lies in mem, which is not on the Go heap.
func within(p, mem []byte) (offset uint64, ok bool) {
	at, first := uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if at < first || at-first > uintptr(len(mem)) || uintptr(len(p)) > uintptr(len(mem))-(at-first) {
		return 0, false
	}
	return uint64(at - first), true
}

// toLine returns how far the next cache line starts behind the start of b.
func toLine(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineSize)
}

// slot is that of a frame: its word, and the header and payload of a short one.
type slot struct {
	word, header uint64
	payload      [slotPayload]byte
}

// immediate is where the immediate data of a short frame are.
func (s *slot) immediate() *uint32 { return (*uint32)(unsafe.Pointer(&s.payload)) }

// slot is the slot of frame i. It is for memory with slots.
func (h *half) slot(i uint32) *slot {
	return (*slot)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(h.words)), uintptr(i&h.last)*slotSize))
}
