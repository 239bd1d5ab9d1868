package core

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Offsets in an admin command of fields that can be refused, in bytes; Field has the others.
const (
	FieldOpcode  = uint16(unsafe.Offsetof(datasheet.Command{}.Opcode))
	fieldPayload = uint16(unsafe.Offsetof(datasheet.Command{}.Payload))
	fieldHandle  = fieldPayload + uint16(unsafe.Offsetof(datasheet.MemoryBody{}.Handle))
	FieldOptions = fieldPayload + uint16(unsafe.Offsetof(datasheet.CreateEndpointBody{}.Options))
)

// Field is the offset in a command of a field of its body b.
func Field[B datasheet.CommandBody, F any](b *B, field *F) uint16 {
	return fieldPayload + uint16(uintptr(unsafe.Pointer(field))-uintptr(unsafe.Pointer(b)))
}

// aligned reports whether b starts where descriptors at address do.
func aligned(b []byte, address uint64) bool {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))%datasheet.DescriptorAlign == address%datasheet.DescriptorAlign
}
