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
	slotShift   = 4 // words of a slot
	slotHeader  = 2 * wordSize
	slotPayload = slotSize - slotHeader
	firstLine   = lineSize - slotHeader // bytes of it on the line of the word
	secondLine  = lineSize              // and on the next
	perSlot     = 256                   // bytes of the ring for each slot
)

// half is one direction as both sides see it.
type half struct {
	// freed counts the bytes that the receiver has given back. It writes it.
	freed *uint32
	// asleep is not zero if the receiver wants to be woken. Both write it.
	asleep *uint32
	// credits are behind both directions' parts; none if one end knows of none.
	credits ends.Credits
	// void says which frames' loans have been revoked. The sender writes it.
	void *uint64
	// copying is odd while the sender copies to memory of the receiver's, or from it. The
	// sender writes it.
	copying *uint32
	words   []uint64 // by frame number: one each, or a slot
	frames  []byte   // a power of two
	// immediates says that both ends know short frames with immediate data.
	immediates bool
	// shift says how many words there are for each frame, as a power of two: 0 or slotShift.
	shift uint8
	last  uint32 // count less one
	// freedBoth is freed and, in bits 63:32, the number of the frames that the receiver has
	// given back. It is in use where there are slots.
	freedBoth *uint64
}

// numberIn is where the number of the wire is, which the listener writes before there is
// a peer: zero if it knows of none.
func numberIn(mem []byte) *uint32 { return datasheet.IndexAt(mem[numberOffset:]) }

// halfSize is the size of one direction with a ring of so many bytes, with slots or without.
func halfSize(ring int, slots bool) int { return wordsOffset + wordsSize(ring, slots) + ring }

// wordsSize is the size of the words, or slots, of a ring.
func wordsSize(ring int, slots bool) int {
	if slots {
		return ring / perSlot * slotSize
	}
	return ring / lineSize * wordSize
}

// creditsSize is the size of the credit words of one direction.
const creditsSize = ends.CreditWords * wordSize

// fileSize is the size of the memory of a connection whose ends have agreed on flags.
func fileSize(ring int, agreed uint32) int {
	size := 2 * halfSize(ring, agreed&flagSlots != 0)
	if agreed&flagCredits != 0 {
		size += 2 * creditsSize
	}
	return size
}

// layHalves lays both directions over the memory of a connection whose ends have agreed on flags.
func layHalves(mem []byte, ring int, agreed uint32) (first, second half) {
	slots := agreed&flagSlots != 0
	size := halfSize(ring, slots)
	first, second = layHalf(mem, ring, slots), layHalf(mem[size:], ring, slots)
	first.immediates, second.immediates = agreed&flagImmediates != 0, agreed&flagImmediates != 0
	if agreed&flagCredits != 0 {
		words := mem[2*size:]
		first.credits, second.credits = wordsAt(words[:creditsSize]), wordsAt(words[creditsSize:])
	}
	return first, second
}

// layHalf lays a direction over memory of halfSize bytes.
func layHalf(mem []byte, ring int, slots bool) half {
	framesOffset := wordsOffset + wordsSize(ring, slots)
	h := half{
		freed:     datasheet.IndexAt(mem[freedOffset:]),
		freedBoth: &wordsAt(mem[freedOffset : freedOffset+wordSize])[0],
		asleep:    datasheet.IndexAt(mem[asleepOffset:]),
		void:      &wordsAt(mem[voidOffset : voidOffset+wordSize])[0],
		copying:   datasheet.IndexAt(mem[copyOffset:]),
		words:     wordsAt(mem[wordsOffset:framesOffset]),
		frames:    mem[framesOffset : framesOffset+ring : framesOffset+ring],
	}
	if slots {
		h.shift = slotShift
	}
	h.last = uint32(len(h.words))>>h.shift - 1
	return h
}

// slots reports whether each frame has a slot.
func (h *half) slots() bool { return h.shift != 0 }

// count counts the words or slots of frames, a power of two.
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
func (h *half) word(i uint32) *uint64 { return &h.words[i<<(h.shift&31)&uint32(len(h.words)-1)] }
