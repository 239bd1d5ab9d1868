package driver

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// liesAt reports whether d lies where it says: the driver reads its status
// there, the device writes it there.
func liesAt(d *descriptors.Descriptor, address uint64) bool {
	return uint64(uintptr(unsafe.Pointer(d.Control()))) == address
}

// fieldOptions is where a refused CREATE_ENDPOINT has its options, one of which asks for
// device memory.
const fieldOptions = uint16(unsafe.Offsetof(datasheet.Command{}.Payload) + unsafe.Offsetof(datasheet.CreateEndpointBody{}.Options))

// fieldAccess is where a refused REGISTER_MEMORY has its rights, which ask for device memory.
const fieldAccess = uint16(unsafe.Offsetof(datasheet.Command{}.Payload) + unsafe.Offsetof(datasheet.RegisterMemoryBody{}.Access))
