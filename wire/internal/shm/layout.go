package shm

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Layout of one direction's part of the shared memory, in bytes.
const (
	freedOffset  = 0
	asleepOffset = 128 // off freed's cache line, and off the one that is fetched along with it
	voidOffset   = 256
	numberOffset = 384 // in the first direction's part
	copyOffset   = 512
	wordsOffset  = datasheet.PageSize
	lineSize     = 64
	wordSize     = 8

	// A slot has the word of a frame, the header of a short one, and room for the payload of that.
	slotSize    = 2 * lineSize
	slotHeader  = 2 * wordSize
	slotPayload = slotSize - slotHeader
	firstLine   = lineSize - slotHeader // bytes of it on the line of the word
	secondLine  = lineSize              // and on the next
	perSlot     = 256                   // bytes of the ring for each slot
)

// half is one direction as both sides see it.
type half struct {
	// freed counts the bytes, in bits 31:0, and the frames that the receiver has given back. It writes it.
	freed *uint64
	// asleep is not zero if the receiver wants to be woken. Both write it.
	asleep *uint32
	// credits are behind both directions' parts.
	credits ends.Credits
	// void says which frames' loans have been revoked. The sender writes it.
	void *uint64
	// copying is odd while the sender copies to memory of the receiver's, or from it. The
	// sender writes it.
	copying *uint32
	slots   []uint64 // by frame number
	frames  []byte   // a power of two
	last    uint32   // number of slots less one
}

// numberIn is where the number of the wire is, which the listener writes before there is
// a peer.
func numberIn(mem []byte) *uint32 { return datasheet.IndexAt(mem[numberOffset:]) }

// slotsSize is the size of the slots of a ring, and creditsSize that of the credit words of one direction.
func slotsSize(ring int) int { return ring / perSlot * slotSize }

const creditsSize = ends.CreditWords * wordSize

// halfSize is the size of one direction with a ring of so many bytes.
func halfSize(ring int) int { return wordsOffset + slotsSize(ring) + ring }

// fileSize is the size of the memory of a connection.
func fileSize(ring int) int { return 2 * (halfSize(ring) + creditsSize) }

// layHalves lays both directions over the memory of a connection.
func layHalves(mem []byte, ring int) (first, second half) {
	size := halfSize(ring)
	first, second = layHalf(mem, ring), layHalf(mem[size:], ring)
	words := mem[2*size:]
	first.credits, second.credits = wordsAt(words[:creditsSize]), wordsAt(words[creditsSize:])
	return first, second
}

// layHalf lays a direction over memory of halfSize bytes.
func layHalf(mem []byte, ring int) half {
	framesOffset := wordsOffset + slotsSize(ring)
	return half{
		freed:   &wordsAt(mem[freedOffset : freedOffset+wordSize])[0],
		asleep:  datasheet.IndexAt(mem[asleepOffset:]),
		void:    &wordsAt(mem[voidOffset : voidOffset+wordSize])[0],
		copying: datasheet.IndexAt(mem[copyOffset:]),
		slots:   wordsAt(mem[wordsOffset:framesOffset]),
		frames:  mem[framesOffset : framesOffset+ring : framesOffset+ring],
		last:    uint32(ring/perSlot) - 1,
	}
}

// count counts the slots, a power of two.
func (h *half) count() uint32 { return h.last + 1 }

// prepare gives every word the number that it would have had one lap ago: a word
// has that number or the next one, and no other.
func (h *half) prepare() {
	for i, n := uint32(0), h.count(); i < n; i++ {
		*h.word(i) = wordOf(i-n, 0, 0, flagEnded)
	}
}

// spaceOf is the room of a frame of n bytes in the ring.
func spaceOf(n uint32) uint32 { return max((n+lineSize-1)&^(lineSize-1), lineSize) }

// place is where a frame of n bytes starts that follows position at, and where
// the next one may. Positions are free-running.
func (h *half) place(at, n uint32) (start, end uint32) {
	size, need := uint32(len(h.frames)), spaceOf(n)
	if used := at & (size - 1); used+need > size {
		at += size - used
	}
	return at, at + need
}

// frame is the memory of the frame of n bytes that starts at a position.
func (h *half) frame(start, n uint32) []byte {
	at := start & uint32(len(h.frames)-1)
	return h.frames[at : at+n : at+n]
}

// word is the word of frame i.
func (h *half) word(i uint32) *uint64 { return &h.slot(i).word }
