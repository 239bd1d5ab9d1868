package datasheet

import (
	"math"
	"structs"
)

// ReferenceSize is the size in bytes of a Reference.
const ReferenceSize = 16

// MaxReferences limits the references in a frame: enough for a
// header, a body and a trailer of a program, which may straddle buffers, and few
// enough that the table of a frame takes two cache lines.
const MaxReferences = 8

// MaxReferred is the most bytes of a message that a frame with references stands
// for: as many as the largest frame carries.
const MaxReferred = MaxMTU - HeaderSize

// Reference says where bytes of a message are, in memory that the receiver of
// the frame can read. It is little-endian.
type Reference struct {
	_ structs.HostLayout
	// Region is the number that the wire has given to that memory, not zero.
	Region uint32
	// Length in bytes, not zero.
	Length uint32
	// Offset of the first byte in the memory, in bytes.
	Offset uint64
}

// ReadReferences copies the references of a frame out of table, all that follows
// its header, and checks what can be checked without the memory: there are 1 to
// MaxReferences of them and nothing else, none is empty or wraps, and their
// lengths make length bytes, which the header says that the frame stands for.
// table is read once: it may be memory that the sender can still write. It
// returns how many there are; 0 if anything is wrong, into is undefined then.
func ReadReferences(table []byte, length uint16, into *[MaxReferences]Reference) int {
	on := ReferencesAt(table)
	if len(on) == 0 || len(on) > MaxReferences || len(on)*ReferenceSize != len(table) || length > MaxReferred {
		return 0
	}
	n := copy(into[:], on)
	var total uint64
	for i := range into[:n] {
		r := &into[i]
		if r.Region == 0 || r.Length == 0 || r.Offset > math.MaxUint64-uint64(r.Length) {
			return 0
		}
		total += uint64(r.Length)
	}
	if total != uint64(length) {
		return 0
	}
	return n
}
