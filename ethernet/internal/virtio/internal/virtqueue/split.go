package virtqueue

import "sync/atomic"

const (
	// splitRing is where the ring begins in the driver and device areas, in bytes.
	splitRing = 4
	// noInterrupt in the driver area's flags asks for no interrupts
	// (VIRTQ_AVAIL_F_NO_INTERRUPT), noNotify in the device's for no notifications
	// (VIRTQ_USED_F_NO_NOTIFY). Neither counts with event indexes.
	noInterrupt = 1
	noNotify    = 1
)

// splitDescriptor is one of the descriptor area.
type splitDescriptor struct {
	address uint64
	length  uint32
	flags   uint16
	next    uint16
}

// usedElement is one of the device area.
type usedElement struct{ number, length uint32 }

// split is a split queue. Flags and index of an area share a word.
type split struct {
	loans
	descriptors []splitDescriptor
	avail       []uint16 // the ring of the driver area
	used        []usedElement
	availWord   *uint32 // flags, and the driver's index in the upper half
	usedWord    *uint32 // flags, and the device's index in the upper half
	usedEvent   *uint32 // in the lower half: where the driver wants an interrupt
	availEvent  *uint32 // in the lower half: where the device wants a notification
	// next links the descriptors of a chain, in memory that the device does not see.
	next []uint16

	mask       uint16
	eventIndex bool
	flags      uint32
	// added and shown are the driver's index with and without what was not published;
	// seen is the device's as last looked at, and taken how far it was used up.
	added, shown, seen, taken uint16
}

func newSplit(memory []byte, l Layout, o Options) *split {
	q := &split{loans: newLoans(o), next: make([]uint16, o.Size), mask: uint16(o.Size - 1), eventIndex: o.EventIndex}
	q.view(memory, l, o.Size)
	q.Interrupts(false)
	return q
}

// Room returns how many descriptors are free.
func (q *split) Room() int { return int(q.spare) }

// Add lends a buffer of one part.
func (q *split) Add(p Part, tag uint32) {
	n := q.number()
	d := &q.descriptors[n]
	d.address, d.length = p.Address, p.Length
	room := uint32(0)
	if d.flags = 0; p.Writable {
		d.flags, room = flagWrite, p.Length
	}
	q.lend(n, tag, room, 1, n)
	q.enter(n)
}

// AddChain lends a buffer of several parts.
func (q *split) AddChain(parts []Part, tag uint32) {
	if len(parts) == 0 {
		return
	}
	head := q.number()
	for n, i := head, 0; ; i++ {
		p := &parts[i]
		d := &q.descriptors[n]
		d.address, d.length, d.flags, d.next = p.Address, p.Length, 0, 0
		if p.Writable {
			d.flags = flagWrite
		}
		if i == len(parts)-1 {
			q.lend(head, tag, writable(parts), len(parts), n)
			break
		}
		following := q.number()
		d.flags |= flagNext
		d.next, q.next[n] = following, following
		n = following
	}
	q.enter(head)
}

// enter puts a number into the ring. Devices give buffers back in order, so it is mostly
// there already, and the device's copy of the cache line stays good.
func (q *split) enter(n uint16) {
	if at := &q.avail[q.added&q.mask]; *at != n {
		*at = n
	}
	q.added++
}

// Publish shows what was added.
func (q *split) Publish() (notify bool) {
	old := q.shown
	if q.added == old {
		return false
	}
	q.shown = q.added
	// A full barrier, not only a release: the device's wish is read after it.
	atomic.StoreUint32(q.availWord, q.flags|uint32(q.shown)<<16)
	if !q.eventIndex {
		return atomic.LoadUint32(q.usedWord)&noNotify == 0
	}
	return passed(uint16(atomic.LoadUint32(q.availEvent)), old, q.shown)
}

// passed reports whether an index that went from old to now has passed event, where the
// other side wants to be notified. All are modulo 2^16.
func passed(event, old, now uint16) bool { return now-event-1 < now-old }

// Take takes buffers back.
func (q *split) Take(used []Used) int {
	if q.violation != nil {
		return 0
	}
	if q.taken == q.seen && !q.look() {
		return 0
	}
	count := min(len(used), int(q.seen-q.taken))
	for i := range count {
		e := &q.used[q.taken&q.mask]
		number, length := atomic.LoadUint32(&e.number), atomic.LoadUint32(&e.length)
		b, ok := q.take(uint64(number), length)
		if !ok {
			return i
		}
		q.taken++
		used[i] = Used{b.tag, min(length, b.room)}
		n := uint16(number)
		for n != b.last {
			q.back(n)
			n = q.next[n]
		}
		q.back(n)
	}
	return count
}

// look loads the device's index, and reports whether it has moved.
func (q *split) look() bool {
	index := uint16(atomic.LoadUint32(q.usedWord) >> 16)
	if n := index - q.taken; n > q.shown-q.taken {
		q.fail("index", uint64(index), "more buffers came back than the device has")
		return false
	}
	q.seen = index
	return q.seen != q.taken
}

// Pending reports whether a buffer has come back.
func (q *split) Pending() bool { return q.violation == nil && (q.seen != q.taken || q.look()) }

// Near reports whether n buffers have come back.
func (q *split) Near(n int) bool {
	return uint16(atomic.LoadUint32(q.usedWord)>>16)-q.taken >= uint16(n)
}

// Interrupts asks for interrupts, or for none.
func (q *split) Interrupts(wanted bool) (pending bool) {
	switch {
	case q.eventIndex && wanted:
		atomic.StoreUint32(q.usedEvent, uint32(q.taken))
	case q.eventIndex:
		// As far ahead as can be.
		atomic.StoreUint32(q.usedEvent, uint32(q.taken-1))
	default:
		if q.flags = noInterrupt; wanted {
			q.flags = 0
		}
		atomic.StoreUint32(q.availWord, q.flags|uint32(q.shown)<<16)
	}
	return wanted && q.Pending()
}
