package shm

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// receiver takes frames out of one direction, filled by either side. The zero value
// has no memory.
type receiver struct {
	half
	limit  uint32 // bytes of the largest frame that the peer may send
	eighth uint32

	tail        uint32 // position behind the last frame that was released
	freedLast   uint32 // as the sender knows it
	number      uint32 // of the next frame, or of the one that is held
	freedNumber uint32 // as the sender knows it

	held    bool
	short   bool   // it has the header that follows
	header  uint64 // packed
	beside  datasheet.ShortBeside
	ended   bool   // its sender is done with it
	broken  bool   // it will not become whole
	start   uint32 // of the frame that is held
	next    uint32 // position behind it
	length  uint32
	arrived uint32

	idle    uint32 // looks in vain since frame number asked
	asked   uint32
	aborted uint64 // frames that the peer gave up
	fault   *PeerError
	skipped bool           // take has looked at no more: there may be frames
	lates   uint32         // frames taken after the sender had left
	slept   *atomic.Uint64 // how often it has asked to be woken
}

// take returns the oldest frame, nil if there is none. It stays until release.
func (r *receiver) take() []byte {
	if r.held {
		return r.current()
	}
	// Frames that will not become whole are skipped, as many as there can be.
	for range r.count() {
		var f []byte
		if f, r.skipped = r.look(); !r.skipped {
			return f
		}
	}
	return nil
}

// current is the frame that is held.
func (r *receiver) current() []byte {
	if room := slotRoom(r.beside); r.short && r.length <= room {
		return r.slot(r.number).payload[slotPayload-room:][:r.length:r.length]
	}
	return r.frame(r.start, r.length)
}

// look does what take does for one frame, and reports whether it has skipped it.
func (r *receiver) look() (frame []byte, skipped bool) {
	w := atomic.LoadUint64(r.word(r.number))
	n := uint32(w & lengthMask)
	if w == wholeOf(numberOf(r.number), n) && n <= r.limit {
		r.hold(n)
		r.arrived, r.ended, r.broken = n, true, false
		return r.frame(r.start, n), false
	}
	if w>>numShift != numberOf(r.number) {
		r.none(w)
		return nil, false
	}
	if w>>flagShift&flagShort != 0 {
		return r.takeShort(w, n)
	}
	return r.part(w, n)
}

// hold makes the next frame, of n bytes, the one that is held.
func (r *receiver) hold(n uint32) {
	r.start, r.next = r.place(r.tail, n)
	r.length, r.held, r.short = n, true, false
}

// takeShort takes a short frame with the word w, of n bytes.
func (r *receiver) takeShort(w uint64, n uint32) (frame []byte, skipped bool) {
	flags, beside := w>>flagShift&flagMask, besideOf(w)
	room := slotRoom(beside)
	switch {
	case n > r.limit-datasheet.HeaderSize || flags&flagLent != 0 && n > room:
		r.fault = &PeerError{"length of a short frame", uint64(n), "at most what was agreed on"}
		return nil, false
	case flags&^(flagEnded|flagAborted|flagShort|flagLent|flagImmediate) != 0 || flags&flagEnded == 0:
		r.fault = &PeerError{"flags of a short frame", flags, "5, and 2, 8 and 16 or not"}
		return nil, false
	}
	if n > room {
		r.hold(n)
	} else {
		r.length, r.next, r.held = n, r.tail, true
	}
	r.arrived, r.ended, r.broken = n, true, false
	if flags&flagAborted != 0 {
		r.aborted++
		r.release()
		return nil, true
	}
	// They are read once: the peer may write them at any time.
	s := r.slot(r.number)
	if r.header = atomic.LoadUint64(&s.header); room != slotPayload {
		beside = beside.WithImmediate(atomic.LoadUint32(s.immediate()))
	}
	r.short, r.beside = true, beside
	return r.current(), false
}

// part takes a frame that has not arrived whole, or whose word is bad.
func (r *receiver) part(w uint64, n uint32) (frame []byte, skipped bool) {
	if n > r.limit {
		r.fault = &PeerError{"length of a frame", uint64(n), "at most what was agreed on"}
		return nil, false
	}
	r.hold(n)
	r.arrived, r.ended, r.broken = 0, false, false
	switch good := r.read(w); {
	case !good:
		r.held = false
	case r.broken:
		r.release()
		return nil, true
	default:
		return r.frame(r.start, n), false
	}
	return nil, false
}

// none looks at a word that is not of the next frame, and gives back the room of
// what was released.
func (r *receiver) none(w uint64) {
	// The second line of the next frame's slot is fetched at each look. The
	// processor does so ahead of knowing that the look is in vain: when it is not, a frame of two
	// lines is under way at the same time as its word.
	atomicmem.Fetch(&r.slot(r.number).payload[firstLine])
	if w>>numShift != numberOf(r.number-r.count()) {
		r.fault = &PeerError{"number of a frame", w >> numShift, "the next one, or the one that was there before"}
		return
	}
	r.free()
}

// read takes in what a word says about progress. It reports whether that can be.
func (r *receiver) read(w uint64) bool {
	shown, flags := uint32(w>>shownShift&lengthMask), w>>flagShift&flagMask
	switch {
	case shown > r.length || shown < r.arrived:
		r.fault = &PeerError{"bytes of a frame that have arrived", uint64(shown), "at least as many as before, at most its length"}
	case flags&^(flagEnded|flagAborted) != 0 || flags == flagAborted:
		r.fault = &PeerError{"flags of a frame", flags, "0, ended, or ended and aborted"}
	case flags == flagEnded && shown != r.length:
		r.fault = &PeerError{"bytes of a frame that has ended", uint64(shown), "its length"}
	default:
		r.arrived, r.ended = shown, flags != 0
		if flags&flagAborted != 0 {
			r.broken = true
			r.aborted++
		}
		return true
	}
	r.broken = true
	return false
}

// progress says how many bytes of the frame that is held are there, and whether
// it will never be whole.
func (r *receiver) progress() (n int, broken bool) {
	if !r.held {
		return 0, false
	}
	if !r.ended && !r.broken {
		w := atomic.LoadUint64(r.word(r.number))
		if w>>numShift != numberOf(r.number) || uint32(w&lengthMask) != r.length {
			r.fault = &PeerError{"word of a frame on its way", w, "the number and the length that it had"}
			r.broken = true
		} else {
			r.read(w)
		}
	}
	return int(r.arrived), r.broken
}

// late reports whether there is a frame to take although its sender has left: it may
// say why. There are as many of them at most as fit, as the sender's process may go on
// writing.
func (r *receiver) late() bool {
	left := r.left()
	if left {
		r.lates++
	}
	return left
}

func (r *receiver) left() bool {
	return !r.held && r.lates != r.count() && atomic.LoadUint64(r.word(r.number))>>numShift == numberOf(r.number)
}

// release gives back the frame that is held. It may still be on its way: its
// sender will not write behind it.
func (r *receiver) release() {
	if !r.held {
		return
	}
	r.held = false
	r.tail = r.next
	r.number++
	if r.tail-r.freedLast >= r.eighth || r.number-r.freedNumber >= r.count()/8 {
		r.free()
	}
}

// revoked reports whether the loans of the frame that is held are void. Before a
// number are those frames that can be on their way: as many as there are words.
func (r *receiver) revoked() bool {
	if atomic.LoadUint64(r.word(r.number))>>flagShift&flagAborted != 0 {
		return true
	}
	v := atomic.LoadUint64(r.void)
	return v&voidAll != 0 || v&voidBefore != 0 && uint32(v)-r.number-1 < r.count()
}

// free tells the sender what has been given back since it told last.
func (r *receiver) free() {
	if r.number == r.freedNumber {
		return
	}
	atomicmem.Store64(r.freed, uint64(r.number)<<32|uint64(r.tail))
	r.freedLast, r.freedNumber = r.tail, r.number
}
