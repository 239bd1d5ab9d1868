package datasheet

import (
	"structs"
	"sync/atomic"
)

// Eager regions (SPEC.md 9.1): memory of the host of which the device has a copy of its own,
// in blocks that the host writes there while it builds a message.

// EagerLog2 and EagerWideLog2 are the sizes in bytes of a block, as exponents of two: what a
// region has, and what one with AccessEagerWide has.
const (
	EagerLog2     = 6
	EagerWideLog2 = 7
)

// EagerValid is the status of a block that the device may take from its own memory. With any
// other it takes host memory.
const EagerValid uint8 = 1

// Status of a block in which a part of a message has landed. Of EagerLanded ones host memory has it as well, of
// EagerHeld ones only the block.
const (
	EagerLanded uint8 = 2
	EagerHeld   uint8 = 3
)

// RegionReply is the reply to REGISTER_MEMORY. What follows Handle is zero but of an eager
// region.
type RegionReply struct {
	_      structs.HostLayout
	Handle uint32
	// Blocks is the offset in BAR4 of the first block: that of the application address,
	// rounded down to whole blocks.
	Blocks uint32
	// Status is the offset in BAR4 of the status bytes, one for each block.
	Status uint32
	// BlockLog2 is the size of a block in bytes: exponent of two.
	BlockLog2 uint8
	_         [3]uint8
}

// Eager is where an eager region lies in blocks.
type Eager struct {
	// Lead counts the bytes of the first block before the region.
	Lead uint64
	// Count of blocks.
	Count uint64
	// Log2 of the size of a block in bytes.
	Log2 uint8
}

// EagerLayout lays blocks over length bytes at an application address; they are not none, and
// do not wrap.
func EagerLayout(address, length uint64, log2 uint8) Eager {
	lead := address & (1<<log2 - 1)
	return Eager{Lead: lead, Count: (length-1+lead)>>log2 + 1, Log2: log2}
}

// BlockBytes is the size of the blocks in bytes, a multiple of a block.
func (e Eager) BlockBytes() uint64 { return e.Count << e.Log2 }

// StatusBytes is the size of the blocks' status in device memory, in bytes, a multiple
// of 4.
func (e Eager) StatusBytes() uint64 { return (e.Count + 3) &^ 3 }

// Span returns the first of the blocks that n bytes of the region from offset on touch, and
// the one behind the last. n is not zero.
func (e Eager) Span(offset, n uint64) (first, end uint64) {
	return (e.Lead + offset) >> e.Log2, (e.Lead+offset+n-1)>>e.Log2 + 1
}

// EagerStatus is the status of the blocks of an eager region as the device sees them, four to
// a word. The host may change any of them at any time.
type EagerStatus []uint32

// Valid loads the status of a block, with acquire: what the host stored to the block before
// it is visible afterwards.
func (s EagerStatus) Valid(block uint64) bool {
	return uint8(atomic.LoadUint32(&s[block/4])>>(block%4*8)) == EagerValid
}

// Four is the status of a block, which is a multiple of four, and of the three that follow,
// the first in the lowest byte. All four have EagerValid if it is EagerFourValid.
func (s EagerStatus) Four(block uint64) uint32 { return atomic.LoadUint32(&s[block/4]) }

// EagerFourValid is four status bytes of EagerValid.
const EagerFourValid = uint32(EagerValid) * 0x01010101
