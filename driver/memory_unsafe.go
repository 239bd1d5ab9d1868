package driver

import (
	"os"
	"unsafe"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// addressOf returns the application address of b, as descriptors name it.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// bounds returns the addresses of the first byte of b, which is not empty, and of the one
// behind the last.
func bounds(b []byte) (first, end uint64) { return addressOf(b), addressOf(b) + uint64(len(b)) }

// wholePages returns the pages that b, which is not empty, lies in, and the address of
// the first. Memory of the Go heap has pages too, but is not to be touched by them.
func wholePages(b []byte) (pages []byte, first uint64) {
	page := uintptr(os.Getpagesize())
	before := uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page
	size := (before + uintptr(len(b)) + page - 1) / page * page
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(before))
	return unsafe.Slice((*byte)(p), size), uint64(uintptr(p))
}

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
