package line

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Layout of one direction's memory, in bytes.
const (
	freedOffset  = 0
	asleepOffset = 128 // off freed's cache line, and off the one that is fetched along with it
	voidOffset   = 256
	numberOffset = 384
	copyOffset   = 512
	slotsOffset  = datasheet.PageSize
	wordSize     = 8

	// LineSize is that of a cache line of amd64 and arm64. Frames are aligned to it.
	LineSize = 64

	// A slot has the word of a frame, the header of a short one, and room for the payload of that.
	slotSize    = 2 * LineSize
	slotHeader  = 2 * wordSize
	slotPayload = slotSize - slotHeader
	firstLine   = LineSize - slotHeader // bytes of it on the line of the word
	secondLine  = LineSize              // and on the next
	perSlot     = 256                   // bytes of the ring for each slot
)

// Half is one direction as both sides see it.
type Half struct {
	// Copying is odd while the sender copies to memory of the receiver's, or from it. The
	// sender writes it.
	Copying *uint32
	// Number is of the wire: in the first direction.
	Number *uint32
	// freed counts the bytes, in bits 31:0, and the frames that the receiver has given back. It writes it.
	freed *uint64
	// asleep is not zero if the receiver wants to be woken. Both write it.
	asleep *uint32
	// void says which frames' loans have been revoked. The sender writes it.
	void   *uint64
	slots  []uint64 // by frame number
	frames []byte   // a power of two
	last   uint32   // number of slots less one
}

// Size is the size of the memory of a direction with a ring of so many bytes.
func Size(ring int) int { return slotsOffset + ring/perSlot*slotSize + ring }

// Lay lays a direction over memory of Size bytes, aligned to a line. The ring is a power of two.
func Lay(mem []byte, ring int) Half {
	framesOffset := slotsOffset + ring/perSlot*slotSize
	return Half{
		freed:   &WordsAt(mem[freedOffset : freedOffset+wordSize])[0],
		asleep:  datasheet.IndexAt(mem[asleepOffset:]),
		void:    &WordsAt(mem[voidOffset : voidOffset+wordSize])[0],
		Number:  datasheet.IndexAt(mem[numberOffset:]),
		Copying: datasheet.IndexAt(mem[copyOffset:]),
		slots:   WordsAt(mem[slotsOffset:framesOffset]),
		frames:  mem[framesOffset : framesOffset+ring : framesOffset+ring],
		last:    uint32(ring/perSlot) - 1,
	}
}

// Ring is the size of the ring in bytes.
func (h *Half) Ring() int { return len(h.frames) }

// count counts the slots, a power of two.
func (h *Half) count() uint32 { return h.last + 1 }

// Prepare gives every word the number that it would have had one lap ago: a word
// has that number or the next one, and no other.
func (h *Half) Prepare() {
	for i, n := uint32(0), h.count(); i < n; i++ {
		*h.word(i) = wordOf(i-n, 0, 0, flagEnded)
	}
}

// spaceOf is the room of a frame of n bytes in the ring.
func spaceOf(n uint32) uint32 { return max((n+LineSize-1)&^(LineSize-1), LineSize) }

// place is where a frame of n bytes starts that follows position at, and where
// the next one may. Positions are free-running.
func (h *Half) place(at, n uint32) (start, end uint32) {
	size, need := uint32(len(h.frames)), spaceOf(n)
	if used := at & (size - 1); used+need > size {
		at += size - used
	}
	return at, at + need
}

// frame is the memory of the frame of n bytes that starts at a position.
func (h *Half) frame(start, n uint32) []byte {
	at := start & uint32(len(h.frames)-1)
	return h.frames[at : at+n : at+n]
}

// word is the word of frame i.
func (h *Half) word(i uint32) *uint64 { return &h.slot(i).word }
