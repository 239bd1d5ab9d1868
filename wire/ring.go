package wire

import "sync/atomic"

// ring carries frames from one producer to one consumer, which may be the same
// goroutine or two on different processors. Frames stand in one piece in a
// ring of bytes; their lengths stand in a ring of their own, so that looking
// for a frame does not touch the frame.
//
// Indices are free-running. Each side keeps a copy of the other side's index
// and looks at the real one only when the copy says full or empty. The producer
// publishes once per batch, the consumer once per eighth of the ring or when it
// has emptied it.
type ring struct {
	buf     []byte   // a power of two
	lengths []uint32 // by frame: length, wrapped if it starts at buf[0], parts
	// arrived is, by frame, how many bytes of a frame that comes in parts are
	// there, and broken. Nil if all frames come whole.
	arrived []atomic.Uint32
	eighth  uint32

	_ [apart]byte
	// The producer's.
	head      uint32 // bytes committed, gaps before a wrap included
	frames    uint32 // frames committed
	start     uint32 // of the reserved frame
	room      uint32 // bytes reserved
	shown     uint32 // bytes that the consumer has of the frame that is open
	reserved  bool
	open      bool // the frame committed last is not whole yet
	freedSeen uint32

	_         [apart]byte
	published atomic.Uint32 // frames

	_     [apart]byte
	freed atomic.Uint32 // bytes

	_ [apart]byte
	// The consumer's.
	tail      uint32 // bytes released
	next      uint32 // tail after the frame that take returned
	length    uint32 // of that frame, as in lengths
	taken     uint32 // frames released
	seen      uint32 // published, as last looked at
	freedLast uint32 // freed, as last published
}

const (
	// apart keeps what the two sides write off each other's cache lines, and
	// off the neighbour that amd64 fetches along with a line.
	apart = 2 * frameAlign
	// wrapped marks a frame that did not fit before the end of the ring.
	wrapped uint32 = 1 << 31
	// parts marks a frame that is shown before it is whole.
	parts uint32 = 1 << 30
	// broken marks a frame that will not become whole.
	broken uint32 = 1 << 31
	// minRing and maxRing bound a ring in bytes.
	minRing = 1 << 12
	maxRing = 1 << 30
)

// newRing makes a ring of size bytes, a power of two.
func newRing(size int) *ring {
	// Each frame takes at least frameAlign bytes, so lengths cannot overflow.
	return &ring{buf: alignedBytes(size), lengths: make([]uint32, size/frameAlign), eighth: uint32(size) / 8}
}

// newPartsRing makes a ring whose frames can be shown before they are whole.
func newPartsRing(size int) *ring {
	r := newRing(size)
	r.arrived = make([]atomic.Uint32, len(r.lengths))
	return r
}

// slotSize is the room of a frame of n bytes in the ring.
func slotSize(n uint32) uint32 { return max((n+frameAlign-1)&^(frameAlign-1), frameAlign) }

// reserve returns n bytes for a frame, nil if there is no room.
func (r *ring) reserve(n int) []byte {
	if r.open {
		r.abort()
	}
	size, need := uint32(len(r.buf)), slotSize(uint32(n))
	start := r.head
	if at := start & (size - 1); at+need > size {
		start += size - at
	}
	if start+need-r.freedSeen > size {
		r.freedSeen = r.freed.Load()
		if start+need-r.freedSeen > size {
			r.reserved = false
			return nil
		}
	}
	r.start, r.room, r.reserved = start, uint32(n), true
	at := start & (size - 1)
	return r.buf[at : at+r.room : at+r.room]
}

// space returns the room that reserve returned last.
func (r *ring) space() []byte {
	at := r.start & uint32(len(r.buf)-1)
	return r.buf[at : at+r.room : at+r.room]
}

// commit appends a frame that takes the first n of the bytes reserved last. flags are zero, or parts.
func (r *ring) commit(n int, flags uint32) {
	if !r.reserved || uint32(n) > r.room {
		return
	}
	r.reserved = false
	length := uint32(n) | flags
	if r.start != r.head {
		length |= wrapped
	}
	r.lengths[r.frames&uint32(len(r.lengths)-1)] = length
	r.frames++
	r.head = r.start + slotSize(uint32(n))
}

// show lets the consumer have the first n bytes of the frame that is reserved
// or open. It reports whether that is news.
func (r *ring) show(n int) bool {
	if n <= 0 || uint(n) > uint(r.room) || r.open && uint32(n) <= r.shown || !r.open && !r.reserved {
		return false
	}
	if !r.open {
		r.arrived[r.frames&uint32(len(r.lengths)-1)].Store(uint32(n))
		r.commit(int(r.room), parts)
		r.open = true
		r.publish()
	} else {
		r.last().Store(uint32(n))
	}
	r.shown = uint32(n)
	return true
}

// last is the progress of the frame that is open.
func (r *ring) last() *atomic.Uint32 { return &r.arrived[(r.frames-1)&uint32(len(r.lengths)-1)] }

// finish ends the open frame: all of it is there.
func (r *ring) finish() {
	r.open = false
	r.last().Store(r.room)
}

// abort gives up the frame that is reserved or open.
func (r *ring) abort() {
	r.reserved = false
	if r.open {
		r.open = false
		r.last().Store(broken | r.shown)
	}
}

// publish shows the consumer what was committed. It reports whether there was
// anything.
func (r *ring) publish() bool {
	if r.published.Load() == r.frames {
		return false
	}
	// The store is also a full barrier, which a waker of a sleeping consumer
	// after it relies on.
	r.published.Store(r.frames)
	return true
}

// take returns the oldest frame, nil if there is none. It stays until release.
func (r *ring) take() []byte {
	if r.taken == r.seen {
		if r.seen = r.published.Load(); r.taken == r.seen {
			if r.tail != r.freedLast {
				r.free()
			}
			return nil
		}
	}
	length := r.lengths[r.taken&uint32(len(r.lengths)-1)]
	r.length = length
	size, start := uint32(len(r.buf)), r.tail
	if length&wrapped != 0 {
		start = (start + size - 1) &^ (size - 1)
	}
	length &^= wrapped | parts
	r.next = start + slotSize(length)
	at := start & (size - 1)
	return r.buf[at : at+length : at+length]
}

// progress says how many bytes of the frame that take returned last are there,
// whether it came whole, and whether the producer has given it up.
func (r *ring) progress() (n uint32, whole, gone bool) {
	switch {
	case r.next == r.tail:
		return 0, true, false
	case r.length&parts == 0:
		return r.length &^ wrapped, true, false
	}
	n = r.arrived[r.taken&uint32(len(r.lengths)-1)].Load()
	return n &^ broken, false, n&broken != 0
}

// release gives back the frame that take returned last.
func (r *ring) release() {
	if r.next == r.tail {
		return
	}
	r.tail = r.next
	r.taken++
	if r.tail-r.freedLast >= r.eighth {
		r.free()
	}
}

func (r *ring) free() {
	r.freed.Store(r.tail)
	r.freedLast = r.tail
}

// discard drops what has arrived.
func (r *ring) discard() {
	for r.take() != nil {
		r.release()
	}
}
