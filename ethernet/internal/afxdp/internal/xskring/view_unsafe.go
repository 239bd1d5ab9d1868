package xskring

import (
	"fmt"
	"unsafe"
)

// Desc is a descriptor of the receive and the send ring (struct xdp_desc).
type Desc struct {
	Address uint64
	Length  uint32
	Options uint32
}

// word finds an index or the flags of a ring in its mapping.
func word(b []byte, offset uint64) (*uint32, error) {
	if err := check(b, offset, 4, 4); err != nil {
		return nil, err
	}
	return (*uint32)(unsafe.Pointer(&b[offset])), nil
}

// entries finds the n entries of a ring in its mapping.
func entries[T uint64 | Desc](b []byte, offset uint64, n int) ([]T, error) {
	var t T
	if err := check(b, offset, uint64(n)*uint64(unsafe.Sizeof(t)), 8); err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[offset])), n), nil
}

// check says whether size bytes at an offset are in b, and aligned.
func check(b []byte, offset, size, align uint64) error {
	have := uint64(len(b))
	if offset%align != 0 || offset > have || size > have-offset {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrLayout, size, offset, have)
	}
	return nil
}
