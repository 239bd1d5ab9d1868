package line

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// A word says all about one frame: see the documentation of package shm.
const (
	lengthBits = 16 // MaxMTU fits
	shownShift = lengthBits
	flagShift  = 2 * lengthBits
	numShift   = 40

	lengthMask uint64 = 1<<lengthBits - 1
	numMask    uint64 = 1<<(64-numShift) - 1
	flagMask   uint64 = 1<<(numShift-flagShift) - 1

	flagEnded   uint64 = 1
	flagAborted uint64 = 2
	flagShort   uint64 = 4 // the tag stands where other frames say what has arrived
	flagLent    uint64 = 8 // of short ones: references stand in place of the payload
	// flagImmediate is of short ones: immediate data stand in front of what is in the slot.
	flagImmediate uint64 = 16
	flagWrite     uint64 = 32 // of short ones: an RDMA write

	flagsBeside = flagLent | flagImmediate | flagWrite
)

// wholeOf is the word of a frame of n bytes with a number, all of which has
// arrived.
func wholeOf(number uint64, n uint32) uint64 {
	return number<<numShift | flagEnded<<flagShift | uint64(n)*(1<<shownShift|1)
}

// numberOf is the number that the word of frame i carries.
func numberOf(i uint32) uint64 { return (uint64(i) + 1) & numMask }

// wordOf is the word of frame i, of n bytes of which shown have arrived.
func wordOf(i, n, shown uint32, flags uint64) uint64 {
	return numberOf(i)<<numShift | flags<<flagShift | uint64(shown)<<shownShift | uint64(n)
}

// besideShift moves flagsBeside to ShortLent, ShortImmediate and ShortWrite.
const besideShift = 13

// shortOf is the word of frame i, a short one of n bytes.
func shortOf(i, n uint32, b datasheet.ShortBeside) uint64 {
	flags := uint64(b>>besideShift) & flagsBeside
	return wordOf(i, n, uint32(b.Tag()), flags|flagShort|flagEnded)
}

// besideOf reads it from the word of a short frame.
func besideOf(w uint64) datasheet.ShortBeside {
	return datasheet.ShortBeside(w>>shownShift&lengthMask | w>>flagShift&flagsBeside<<besideShift)
}

// slotRoom is the room in a slot for the payload of a short frame.
func slotRoom(b datasheet.ShortBeside) uint32 {
	if b&datasheet.ShortImmediate != 0 {
		return slotPayload - wordSize
	}
	return slotPayload
}

// Bits of the word that says which loans are void: those of the frames before a
// number (bits 31:0), or all.
const (
	voidBefore uint64 = 1 << 32
	voidAll    uint64 = 1 << 33
)
