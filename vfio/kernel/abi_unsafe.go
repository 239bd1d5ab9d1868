package kernel

import (
	"encoding/binary"
	"structs"
	"unsafe"
)

// bindIOMMUFD holds a pointer in the field that Linux 6.17 added; older kernels
// know the first 16 bytes.
type bindIOMMUFD struct {
	_            structs.HostLayout
	argsz, flags uint32
	iommufd      int32
	devID        uint32
	token        unsafe.Pointer // to 16 bytes
}

type ioasIOVARanges struct {
	_                  structs.HostLayout
	size, ioas, num, _ uint32
	ranges             unsafe.Pointer // to num of iovaRange
	alignment          uint64
}

// newIOVARanges asks for as many ranges as there are elements, at least one.
func newIOVARanges(ioas uint32, into []iovaRange) *ioasIOVARanges {
	r := &ioasIOVARanges{ioas: ioas, num: uint32(len(into)), ranges: unsafe.Pointer(unsafe.SliceData(into))}
	r.size = sizeOf(r)
	return r
}

// newBind binds to an iommufd, with a token if it is not nil.
func newBind(iommufd int, token *[16]byte) *bindIOMMUFD {
	b := &bindIOMMUFD{argsz: sizeOfBindWithoutUUID, iommufd: int32(iommufd)}
	if token != nil {
		b.argsz, b.flags, b.token = sizeOf(b), bindFlagToken, unsafe.Pointer(token)
	}
	return b
}

// sized sets the first field of a structure, which tells the kernel its size, and
// returns its memory.
func sized[T any](s *T) []byte {
	b := bytesOf(s)
	binary.NativeEndian.PutUint32(b, sizeOf(s))
	return b
}

// sizeOf returns the size of a structure for the field that tells the kernel.
func sizeOf[T any](s *T) uint32 { return uint32(unsafe.Sizeof(*s)) }

// bytesOf returns the memory of a structure. The structure must not be smaller
// than what the kernel is told.
func bytesOf[T any](s *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
}

// load copies a structure from the start of b. It reports whether b holds all
// of it.
func load[T any](b []byte) (s T, ok bool) {
	if uintptr(len(b)) < unsafe.Sizeof(s) {
		return s, false
	}
	copy(bytesOf(&s), b)
	return s, true
}
