package vfiouser

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapOver maps a part of a file in the place of b, which is a mapping of the
// same size. The holder of b goes on with it.
func mapOver(b []byte, fd int, offset uint64, protection int) error {
	_, err := unix.MmapPtr(fd, int64(offset), unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		protection, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}
