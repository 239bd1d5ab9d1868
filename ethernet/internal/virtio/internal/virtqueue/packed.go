package virtqueue

import "sync/atomic"

// Flags of packed descriptors (VIRTQ_DESC_F_AVAIL, VIRTQ_DESC_F_USED).
const (
	flagAvail = 1 << 7
	flagUsed  = 1 << 15
)

// Values of the flags in an event word (RING_EVENT_FLAGS_ENABLE, _DISABLE, _DESC), and
// where they are in it.
const (
	eventEnable  = 0
	eventDisable = 1
	eventAt      = 2
	eventShift   = 16
	eventWrap    = 15
)

// Where fields of what are.
const (
	numberShift = 32
	flagsShift  = 48
)

// packedDescriptor is a descriptor. what is length (32 bits), number (16) and flags (16):
// one load or store has them all.
type packedDescriptor struct{ address, what uint64 }

// packed is a packed queue.
type packed struct {
	loans
	descriptors []packedDescriptor
	driverEvent *uint32
	deviceEvent *uint32
	eventIndex  bool

	room int
	// next is the first descriptor that is free, and nextWrap its flags if the driver
	// makes it available; last is where the device uses the next buffer, and lastWrap
	// the flags that it then has.
	next, last         uint32
	nextWrap, lastWrap uint64
	// first is the oldest descriptor that is not published, and firstWhat what makes it
	// visible; added counts them.
	first     uint32
	firstWhat uint64
	added     uint32
}

func newPacked(memory []byte, l Layout, o Options) *packed {
	q := &packed{loans: newLoans(o), eventIndex: o.EventIndex, room: o.Size,
		nextWrap: flagAvail << flagsShift, lastWrap: (flagAvail | flagUsed) << flagsShift}
	q.view(memory, l, o.Size)
	q.Interrupts(false)
	return q
}

// wrapBits are the flags that change with each round.
const wrapBits = uint64(flagAvail|flagUsed) << flagsShift

// Room returns how many descriptors are free. There are numbers for all of them.
func (q *packed) Room() int { return q.room }

// Add lends a buffer of one part.
func (q *packed) Add(p Part, tag uint32) {
	n := q.number()
	what, room := uint64(p.Length)|uint64(n)<<numberShift, uint32(0)
	if p.Writable {
		what |= flagWrite << flagsShift
		room = p.Length
	}
	q.lend(n, tag, room, 1, n)
	q.put(p.Address, what)
}

// AddChain lends a buffer of several parts.
func (q *packed) AddChain(parts []Part, tag uint32) {
	if len(parts) == 0 {
		return
	}
	n := q.number()
	q.lend(n, tag, writable(parts), len(parts), n)
	for i := range parts {
		p := &parts[i]
		what := uint64(p.Length) | uint64(n)<<numberShift
		if p.Writable {
			what |= flagWrite << flagsShift
		}
		if i < len(parts)-1 {
			what |= flagNext << flagsShift
		}
		q.put(p.Address, what)
	}
}

// put fills the next descriptor. The device looks at one after the other, so it sees none
// of them until Publish makes the first visible.
func (q *packed) put(address, what uint64) {
	d := &q.descriptors[q.next]
	d.address = address
	what |= q.nextWrap
	if q.added == 0 {
		q.first, q.firstWhat = q.next, what
	} else {
		d.what = what
	}
	q.added++
	q.room--
	if q.next++; q.next == uint32(len(q.descriptors)) {
		q.next = 0
		q.nextWrap ^= wrapBits
	}
}

// Publish shows what was added.
func (q *packed) Publish() (notify bool) {
	added := uint16(q.added)
	if added == 0 {
		return false
	}
	q.added = 0
	// A full barrier, not only a release: the device's wish is read after it.
	atomic.StoreUint64(&q.descriptors[q.first].what, q.firstWhat)
	event := atomic.LoadUint32(q.deviceEvent)
	switch event >> eventShift & 3 {
	case eventDisable:
		return false
	case eventAt:
		if !q.eventIndex {
			return true // the device must not say so
		}
		// Positions are compared as if the ring went on beyond its end.
		at, now := uint16(event&(1<<eventWrap-1)), uint16(q.next)
		if event&(1<<eventWrap) != 0 != (q.nextWrap&(flagAvail<<flagsShift) != 0) {
			at -= uint16(len(q.descriptors))
		}
		return passed(at, now-added, now)
	}
	return true
}

// Take takes buffers back.
func (q *packed) Take(used []Used) int {
	if q.violation != nil {
		return 0
	}
	for i := range used {
		if q.lent == 0 {
			return i
		}
		what := atomic.LoadUint64(&q.descriptors[q.last].what)
		if what&wrapBits != q.lastWrap {
			return i
		}
		number, length := uint16(what>>numberShift), uint32(what)
		b, ok := q.take(uint64(number), length)
		if !ok {
			return i
		}
		used[i] = Used{b.tag, min(length, b.room)}
		q.back(number)
		q.room += int(b.parts)
		if q.last += uint32(b.parts); q.last >= uint32(len(q.descriptors)) {
			q.last -= uint32(len(q.descriptors))
			q.lastWrap ^= wrapBits
		}
	}
	return len(used)
}

// Pending reports whether a buffer has come back.
func (q *packed) Pending() bool {
	return q.violation == nil && q.lent > 0 && atomic.LoadUint64(&q.descriptors[q.last].what)&wrapBits == q.lastWrap
}

// Near reports whether n buffers have come back, each of one descriptor.
func (q *packed) Near(n int) bool {
	i, wrap := q.last+uint32(n)-1, q.lastWrap
	if i >= uint32(len(q.descriptors)) {
		i -= uint32(len(q.descriptors))
		wrap ^= wrapBits
	}
	return q.lent >= n && atomic.LoadUint64(&q.descriptors[i].what)&wrapBits == wrap
}

// Interrupts asks for interrupts, or for none.
func (q *packed) Interrupts(wanted bool) (pending bool) {
	word := uint32(eventDisable << eventShift)
	switch {
	case wanted && q.eventIndex:
		word = eventAt<<eventShift | q.last
		if q.lastWrap != 0 {
			word |= 1 << eventWrap
		}
	case wanted:
		word = eventEnable << eventShift
	}
	atomic.StoreUint32(q.driverEvent, word)
	return wanted && q.Pending()
}

// Reclaim gives the tags of all buffers that the device has to f, and forgets them.
func (q *packed) Reclaim(f func(tag uint32)) {
	q.loans.Reclaim(f)
	q.room = 0
}
