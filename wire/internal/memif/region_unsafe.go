package memif

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// retire puts private memory in the place of a mapping. A goroutine that is about to
// use the mapping uses that instead: the kernel changes one for the other while
// it keeps page faults waiting. If there is no memory for the kernel's own tables, the peer's stays
// mapped until release.
func (r *region) retire() {
	_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(r.memory)), uintptr(len(r.memory)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
}
