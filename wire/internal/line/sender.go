package line

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Sender puts frames into one direction. The zero value has no memory.
type Sender struct {
	Half

	head      uint32 // position after the last frame that was ended or shown
	freedSeen uint32
	number    uint32 // of the next frame
	taken     uint32 // number up to which the receiver has given frames back

	start, room uint32 // of the frame that is reserved or open
	end         uint32 // position behind it
	reserved    bool
	open        bool   // the frame before number is not whole yet
	shown       uint32 // bytes of it that the peer has

	// first is the word of the first frame since the last flush: it is written
	// last, and so hides those that follow.
	first       uint64
	firstNumber uint32
	batch       bool

	heard uint32 // frames that the peer had sent when this side answered last
	sure  uint32 // up to where it had released all when Receive last found nothing

	loans []loanOf // by frame number; nil as long as nothing has been lent

	fault *PeerError
}

// loanOf says on whose behalf a frame lends.
type loanOf struct{ number, owner uint32 }

// A frame that goes out alone and has so many bytes is demoted. Smaller ones the
// receiver fetches while it polls, and with larger ones it begins before the end
// of them is demoted.
const (
	demoteAbove = 2 * LineSize
	demoteUpTo  = 4096 + 2*LineSize
)

// Reserve returns n bytes for a frame, nil if there is no room.
func (s *Sender) Reserve(bytes int) []byte {
	if s.open {
		s.Abort()
	}
	n := uint32(bytes)
	start, end := s.place(s.head, n)
	if !s.fits(end) {
		s.reserved = false
		return nil
	}
	s.start, s.end, s.room, s.reserved = start, end, n, true
	return s.frame(start, n)
}

// Space returns the room that Reserve returned last.
func (s *Sender) Space() []byte { return s.frame(s.start, s.room) }

// Shorten makes the frame that is reserved one of n bytes, which are its first. The receiver finds a frame by its
// length: one that now fits before the end of the ring moves there.
func (s *Sender) Shorten(n int) {
	start, end := s.place(s.head, uint32(n))
	if start != s.start {
		copy(s.frame(start, uint32(n)), s.frame(s.start, uint32(n)))
	}
	s.start, s.end, s.room = start, end, uint32(n)
}

// Held reports whether a frame is reserved or open.
func (s *Sender) Held() bool { return s.reserved || s.open }

// Position is where the sender is: the position behind the last frame, and the number of the next.
func (s *Sender) Position() (head, number uint32) { return s.head, s.number }

// Resume goes on at a position. All frames before it may be under way.
func (s *Sender) Resume(head, number uint32) {
	s.head, s.freedSeen, s.number, s.taken = head, head-uint32(len(s.frames)), number, number-s.count()
}

// sendShort appends a short frame with a packed header and a payload in two pieces, if there is room. One of
// more than slotRoom bytes stands in the ring, others in the slot. If shown, the receiver sees it at once,
// unless others before it wait for flush.
//
// The receiver looks at the cache line of the word again and again. It takes the line away between two
// stores that are apart, and each time that costs a crossing. So they come last, one behind the other.
func (s *Sender) sendShort(header uint64, b datasheet.ShortBeside, payload, rest []byte, shown bool) bool {
	if s.open || s.reserved {
		s.Abort()
	}
	n, end, room := uint32(len(payload)+len(rest)), s.head, slotRoom(b)
	if n > room {
		s.start, end = s.place(s.head, n)
	}
	if (n > room || s.number-s.taken > s.last) && !s.fits(end) {
		return false
	}
	to := s.slot(s.number)
	at := to.payload[slotPayload-room:]
	switch first := room - secondLine; {
	case n > room:
		into := s.frame(s.start, n)
		copy(into[copy(into, payload):], rest)
	case rest != nil:
		copy(at[copy(at, payload):], rest)
	case n > first:
		copy(at[first:], payload[first:])
		copy(at[:first], payload)
	default:
		copy(at[:first], payload)
	}
	if room != slotPayload {
		*to.immediate() = b.Immediate()
	}
	s.end, s.room, to.header = end, n, header
	w := shortOf(s.number, n, b)
	if shown && !s.batch {
		atomicmem.Store64(&to.word, w)
		s.firstNumber = s.number
		s.pass()
	} else {
		s.append(w)
	}
	return true
}

// put is sendShort, which has the rules, for what most frames are. It returns false for others.
func (s *Sender) put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) bool {
	n, first := uint32(len(payload)), uint32(firstLine)
	if s.open || s.reserved || n > slotPayload || b > 1<<lengthBits-1 || s.number-s.taken > s.last {
		return false
	}
	to := s.slot(s.number)
	if n > first {
		if n <= LineSize {
			*(*[16]byte)(to.payload[n-16:]) = *(*[16]byte)(payload[n-16:])
		} else {
			copy(to.payload[firstLine:], payload[firstLine:])
		}
		*(*[firstLine]byte)(to.payload[:firstLine]) = *(*[firstLine]byte)(payload)
	} else {
		copy(to.payload[:firstLine], payload)
	}
	w := numberOf(s.number)<<numShift | (flagShort|flagEnded)<<flagShift | uint64(b)<<shownShift | uint64(n)
	to.header = header
	if last && !s.batch {
		atomicmem.Store64(&to.word, w)
	} else if s.batch {
		to.word = w
	} else {
		s.first, s.firstNumber, s.batch = w, s.number, true
	}
	s.number++
	return true
}

// fits reports whether there is room for a frame that ends at a position, and for its word.
func (s *Sender) fits(end uint32) bool {
	size := uint32(len(s.frames))
	if end-s.freedSeen <= size && s.number-s.taken <= s.last {
		return true
	}
	s.look()
	return end-s.freedSeen <= size && s.number-s.taken <= s.last
}

// look reads the position and the number up to which the receiver has given back.
func (s *Sender) look() {
	both := atomic.LoadUint64(s.freed)
	freed, taken := uint32(both), uint32(both>>32)
	switch {
	case freed-s.freedSeen > s.head-s.freedSeen:
		s.fault = &PeerError{"freed bytes", uint64(freed), "a position between the last one and what was sent"}
	case taken-s.taken > s.number-s.taken:
		s.fault = &PeerError{"freed frames", uint64(taken), "a number between the last one and what was sent"}
	default:
		s.freedSeen, s.taken = freed, taken
	}
}

// Commit appends the reserved frame. It shows with Flush.
func (s *Sender) Commit() {
	s.append(wordOf(s.number, s.room, s.room, flagEnded))
}

// append appends the reserved frame, of which w is the word.
func (s *Sender) append(w uint64) {
	if s.batch {
		*s.word(s.number) = w
	} else {
		s.first, s.firstNumber, s.batch = w, s.number, true
	}
	s.pass()
}

// pass moves on behind the reserved frame.
func (s *Sender) pass() {
	s.reserved = false
	s.number++
	s.head = s.end
}

// Flush shows the receiver what was committed. It reports whether there was
// anything.
func (s *Sender) Flush() bool {
	if !s.batch {
		return false
	}
	s.batch = false
	atomicmem.Store64(s.word(s.firstNumber), s.first)
	return true
}

// answer makes what flush has just shown reach a receiver that waits for it as
// soon as can be. It slows a stream of frames down: it is for an answer to what
// the peer has sent, heard frames in all.
func (s *Sender) answer(heard uint32) {
	s.heard = heard
	if s.room > demoteAbove && s.room <= demoteUpTo && s.number-s.firstNumber == 1 {
		f := s.frame(s.start, s.room)
		atomicmem.Demote(&f[0], int(spaceOf(s.room))/LineSize)
	}
}

// Show lets the receiver have the first n bytes of the frame that is reserved or
// open, and all frames before it. It reports whether that is news.
func (s *Sender) Show(n int) bool {
	if n <= 0 || uint(n) > uint(s.room) || s.open && uint32(n) <= s.shown || !s.open && !s.reserved {
		return false
	}
	if !s.open {
		s.pass()
		s.open = true
	}
	s.shown = uint32(n)
	s.tell(0)
	s.Flush()
	return true
}

// Finish ends the open frame: all of it is there.
func (s *Sender) Finish() {
	s.open = false
	s.shown = s.room
	s.tell(flagEnded)
}

// Abort gives up the frame that is reserved or open.
func (s *Sender) Abort() {
	s.reserved = false
	if s.open {
		s.open = false
		s.tell(flagEnded | flagAborted)
	}
}

// VoidAll makes all loans void, of frames to come as well. Any goroutine may call it.
func (s *Sender) VoidAll() { atomicmem.Store64(s.void, voidAll) }

// Revoke makes the loans of all frames before the next one void.
func (s *Sender) Revoke() { atomicmem.Store64(s.void, voidBefore|uint64(s.number)) }

// Lend notes on whose behalf the frame that was committed last lends.
func (s *Sender) Lend(owner uint32) {
	if s.loans == nil {
		s.loans = make([]loanOf, s.count())
	}
	s.loans[(s.number-1)&uint32(len(s.loans)-1)] = loanOf{s.number - 1, owner}
}

// RevokeOf makes the loans void of all frames before the next one that lend on behalf of
// owner.
func (s *Sender) RevokeOf(owner uint32) {
	for i, l := range s.loans {
		// An older frame's word is another one's by now.
		if l.owner != owner || s.number-1-l.number >= uint32(len(s.loans)) {
			continue
		}
		s.loans[i].owner = 0
		if s.batch && l.number == s.firstNumber {
			s.first |= flagAborted << flagShift
		} else {
			atomicmem.Store64(s.word(l.number), *s.word(l.number)|flagAborted<<flagShift)
		}
	}
}

// tell writes the word of the open frame.
func (s *Sender) tell(flags uint64) {
	atomicmem.Store64(s.word(s.number-1), wordOf(s.number-1, s.room, s.shown, flags))
}
