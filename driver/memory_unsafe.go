package driver

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// addressOf returns the application address of b, as descriptors name it.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// liesAt reports whether d lies where it says: the driver reads its status
// there, the device writes it there.
func liesAt(d *descriptors.Descriptor, address uint64) bool {
	return uint64(uintptr(unsafe.Pointer(d.Control()))) == address
}
