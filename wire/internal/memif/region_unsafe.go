package memif

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// replace puts private memory in the place of a mapping. A goroutine that is about to
// use the mapping uses that instead: the kernel changes one for the other while
// it keeps page faults waiting.
func replace(mapping []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(mapping)), uintptr(len(mapping)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
	return os.NewSyscallError("mmap", err)
}
