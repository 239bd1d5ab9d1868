package line

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Receiver takes frames out of one direction. The zero value
// has no memory.
type Receiver struct {
	Half
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

	out     bool   // Line.Next has given out the next frame, of its slot, and none is held
	aborted uint64 // frames that the peer gave up
	fault   *PeerError
	skipped bool // find has looked at no more: there may be frames
	over    bool // the sender has left, and only frames before until are taken
	until   uint32
}

// NewReceiver makes one for frames of up to limit bytes.
func NewReceiver(h Half, limit int) Receiver {
	return Receiver{Half: h, limit: uint32(limit), eighth: uint32(len(h.frames) / 8)}
}

// Position is where the receiver is: the position behind the last frame that was released, and the number
// of the next.
func (r *Receiver) Position() (tail, number uint32) { return r.tail, r.number }

// Resume goes on at a position, of which the sender knows.
func (r *Receiver) Resume(tail, number uint32) {
	r.tail, r.freedLast, r.number, r.freedNumber = tail, tail, number, number
}

// Limit is the largest frame that the sender may send, in bytes.
func (r *Receiver) Limit() int { return int(r.limit) }

// Aborted counts the frames that the sender gave up.
func (r *Receiver) Aborted() uint64 { return r.aborted }

// Held reports whether a frame has been given out and not given back.
func (r *Receiver) Held() bool { return r.held || r.out }

// Whole reports whether no frame is held that may still be on its way.
func (r *Receiver) Whole() bool { return !r.held || r.ended }

// Take returns the oldest frame, nil if there is none. It stays until Release.
func (r *Receiver) Take() []byte {
	if !r.find() {
		return nil
	}
	return r.current()
}

// find makes the oldest frame the one that is held, and reports whether there is one.
func (r *Receiver) find() bool {
	if r.held {
		return true
	}
	// Frames that will not become whole are skipped, as many as there can be.
	for range r.count() {
		if r.skipped = r.look(); !r.skipped {
			return r.held
		}
	}
	return false
}

// current is the frame that is held.
func (r *Receiver) current() []byte {
	if room := slotRoom(r.beside); r.short && r.length <= room {
		return r.slot(r.number).payload[slotPayload-room:][:r.length:r.length]
	}
	return r.frame(r.start, r.length)
}

// look does what find does for one frame, and reports whether it has skipped it.
func (r *Receiver) look() (skipped bool) {
	w := atomic.LoadUint64(r.word(r.number))
	n := uint32(w & lengthMask)
	if w == wholeOf(numberOf(r.number), n) && n <= r.limit {
		r.hold(n)
		r.arrived, r.ended, r.broken = n, true, false
		return false
	}
	if w>>numShift != numberOf(r.number) {
		r.none(w)
		return false
	}
	if w>>flagShift&flagShort != 0 {
		return r.takeShort(w, n)
	}
	return r.part(w, n)
}

// hold makes the next frame, of n bytes, the one that is held.
func (r *Receiver) hold(n uint32) {
	r.start, r.next = r.place(r.tail, n)
	r.length, r.held, r.short, r.out = n, true, false, false
}

// takeShort takes a short frame with the word w, of n bytes.
func (r *Receiver) takeShort(w uint64, n uint32) (skipped bool) {
	flags, beside := w>>flagShift&flagMask, besideOf(w)
	room := slotRoom(beside)
	switch {
	case n > r.limit-datasheet.HeaderSize || flags&flagLent != 0 && n > room:
		r.fault = &PeerError{"length of a short frame", uint64(n), "at most what was agreed on"}
		return false
	case flags&^(flagEnded|flagAborted|flagShort|flagsBeside) != 0 || flags&flagEnded == 0:
		r.fault = &PeerError{"flags of a short frame", flags, "5, and 2, 8, 16 and 32 or not"}
		return false
	}
	if r.hold(n); n <= room {
		r.next = r.tail // it takes none of the ring
	}
	r.arrived, r.ended, r.broken = n, true, false
	if flags&flagAborted != 0 {
		r.aborted++
		r.Release()
		return true
	}
	// They are read once: the peer may write them at any time.
	s := r.slot(r.number)
	if r.header = atomic.LoadUint64(&s.header); room != slotPayload {
		beside = beside.WithImmediate(atomic.LoadUint32(s.immediate()))
	}
	r.short, r.beside = true, beside
	return false
}

// part takes a frame that has not arrived whole, or whose word is bad.
func (r *Receiver) part(w uint64, n uint32) (skipped bool) {
	if n > r.limit {
		r.fault = &PeerError{"length of a frame", uint64(n), "at most what was agreed on"}
		return false
	}
	r.hold(n)
	r.arrived, r.ended, r.broken = 0, false, false
	switch good := r.read(w); {
	case !good:
		r.held = false
	case r.broken:
		r.Release()
		return true
	}
	return false
}

// none looks at a word that is not of the next frame, and gives back the room of
// what was released.
func (r *Receiver) none(w uint64) {
	// The second line of the next frame's slot is fetched at each look. The
	// processor does so ahead of knowing that the look is in vain: when it is not, a frame of two
	// lines is under way at the same time as its word.
	atomicmem.Fetch(&r.slot(r.number).payload[firstLine])
	if w>>numShift != numberOf(r.number-r.count()) {
		r.fault = &PeerError{"number of a frame", w >> numShift, "the next one, or the one that was there before"}
		return
	}
	r.Free()
}

// read takes in what a word says about progress. It reports whether that can be.
func (r *Receiver) read(w uint64) bool {
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

// Progress says how many bytes of the frame that is held are there, and whether
// it will never be whole.
func (r *Receiver) Progress() (n int, broken bool) {
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

// Late reports whether there is a frame to take although its sender has left: it may
// say why. There are as many of them at most as fit, as the sender's process may go on
// writing.
func (r *Receiver) Late() bool {
	if !r.over {
		r.over, r.until = true, r.number+r.count()
	}
	return r.Left()
}

// Left reports whether there is another frame to take.
func (r *Receiver) Left() bool {
	return !r.held && (!r.over || r.number != r.until) && atomic.LoadUint64(r.word(r.number))>>numShift == numberOf(r.number)
}

// Discard drops what has arrived.
func (r *Receiver) Discard() {
	for r.find() {
		r.Release()
	}
}

// Release gives back the frame that is held. It may still be on its way: its
// sender will not write behind it.
func (r *Receiver) Release() {
	if !r.held {
		return
	}
	r.held = false
	r.tail = r.next
	r.number++
	if r.tail-r.freedLast >= r.eighth || r.number-r.freedNumber >= r.count()/8 {
		r.Free()
	}
}

// Revoked reports whether the loans of the frame that is held are void. Before a
// number are those frames that can be on their way: as many as there are words.
func (r *Receiver) Revoked() bool {
	if atomic.LoadUint64(r.word(r.number))>>flagShift&flagAborted != 0 {
		return true
	}
	v := atomic.LoadUint64(r.void)
	return v&voidAll != 0 || v&voidBefore != 0 && uint32(v)-r.number-1 < r.count()
}

// Free tells the sender what has been given back since it told last.
func (r *Receiver) Free() {
	if r.number == r.freedNumber {
		return
	}
	atomicmem.Store64(r.freed, uint64(r.number)<<32|uint64(r.tail))
	r.freedLast, r.freedNumber = r.tail, r.number
}
