package protocol

import (
	"fmt"
	"unsafe"
)

// raw is the memory of a value whose fields are as those of a message: without gaps, and little-endian.
func raw[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// begin reads a request or a reply. what names it in the *FormatError of one that is too short, or of another version.
func begin[T any](b []byte, what string) (v T, err error) {
	switch size := len(raw(&v)); {
	case len(b) < size:
		return v, &FormatError{"length of the " + what, uint64(len(b)), fmt.Sprintf("at least %d", size)}
	case b[0] != Number:
		return v, &FormatError{"version of the " + what, uint64(b[0]), fmt.Sprint(Number)}
	}
	copy(raw(&v), b)
	return v, nil
}
