package virtqueue

// loan is a buffer that the device has.
type loan struct {
	tag uint32
	// room is the number of bytes that the device may write.
	room uint32
	// parts is the number of descriptors that it takes; 0: the device does not have it.
	parts uint16
	// last is the number of its last descriptor, of a split queue.
	last uint16
}

// loans are the driver's notes on a queue, in memory that the device does not see:
// buffers by number, and the numbers that are free, in the order in which they came back.
type loans struct {
	index     int
	byNumber  []loan
	free      []uint16 // a ring
	head      uint32   // of free, free-running
	spare     uint32   // how many numbers are in free
	lent      int
	violation error
}

func newLoans(o Options) loans {
	l := loans{index: o.Index, byNumber: make([]loan, o.Size), free: make([]uint16, o.Size), spare: uint32(o.Size)}
	for i := range l.free {
		l.free[i] = uint16(i)
	}
	return l
}

// number takes a number. There is one.
func (l *loans) number() uint16 {
	n := l.free[l.head]
	if l.head++; l.head == uint32(len(l.free)) {
		l.head = 0
	}
	l.spare--
	return n
}

// back gives a number back.
func (l *loans) back(n uint16) {
	at := l.head + l.spare
	if at >= uint32(len(l.free)) {
		at -= uint32(len(l.free))
	}
	l.free[at] = n
	l.spare++
}

func (l *loans) lend(n uint16, tag, room uint32, parts int, last uint16) {
	l.byNumber[n] = loan{tag: tag, room: room, parts: uint16(parts), last: last}
	l.lent++
}

// take ends the loan of a buffer whose number the device has given with how many bytes it
// has written. What a device says that it has written to what it can only read has no
// meaning: some give the whole length.
func (l *loans) take(number uint64, length uint32) (b loan, ok bool) {
	if number < uint64(len(l.byNumber)) {
		at := &l.byNumber[number]
		if b = *at; b.parts != 0 && (length <= b.room || b.room == 0) {
			at.parts = 0
			l.lent--
			return b, true
		}
	}
	l.refuse(number, length)
	return b, false
}

// refuse notes why there is no such loan.
func (l *loans) refuse(number uint64, length uint32) {
	switch {
	case number >= uint64(len(l.byNumber)):
		l.fail("number of a used buffer", number, "there is no such buffer")
	case l.byNumber[number].parts == 0:
		l.fail("number of a used buffer", number, "the device does not have it")
	default:
		l.fail("length of a used buffer", uint64(length), "the device has written beyond it")
	}
}

// fail notes what the device has done and ends the use of the queue.
func (l *loans) fail(field string, value uint64, why string) {
	if l.violation == nil {
		l.violation = &Violation{Queue: l.index, Field: field, Value: value, Why: why}
	}
}

// Lent returns how many buffers the device has.
func (l *loans) Lent() int { return l.lent }

// Violation returns why the queue is not used any more, nil if it is.
func (l *loans) Violation() error { return l.violation }

// Reclaim gives the tags of all buffers that the device has to f, and forgets them.
func (l *loans) Reclaim(f func(tag uint32)) {
	for i := range l.byNumber {
		if b := &l.byNumber[i]; b.parts != 0 {
			b.parts = 0
			f(b.tag)
		}
	}
	l.lent, l.spare = 0, 0
}

// writable counts the bytes of parts that the device may write.
func writable(parts []Part) (n uint32) {
	for _, p := range parts {
		if p.Writable {
			n += p.Length
		}
	}
	return n
}
