package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// RingEntry is the part of an entry of a ring beside its message.
type RingEntry struct {
	// Payload is attached to the entry: its handle is 0 for none. A payload that is received goes
	// there, if no entry of the payload table takes it.
	Payload datasheet.DataSegment
	// Length is the number of its bytes that travel, at most Payload.Length.
	Length uint32
	// Tag names an entry of the receiver's payload table, if Tagged.
	Tag    uint32
	Tagged bool
}

// RingCompletion is an entry of a ring that has completed.
type RingCompletion struct {
	// Index is its number on the ring.
	Index  uint32
	Status datasheet.Status
	// Of a receive: the message's tag, and whether it has one.
	Tag    uint32
	Tagged bool
	// Length is the number of bytes of payload in place: those that the message had, Sent,
	// or none if they were discarded.
	Length, Sent uint32
	// Place is the entry of the payload table that says where they are, -1 if they are in
	// the frame that was attached to the entry.
	Place int
}

// RingQueue is one of the two rings of a Ring.
type RingQueue struct {
	queue
	of    *endpoint
	vec   *vector // of both rings
	sends bool
	most  uint32 // bytes of a payload
	level datasheet.Reliability
	wait  string // the name of Wait in errors

	slots  []datasheet.RingSlot
	posted []datasheet.DataSegment
}

func (q *RingQueue) init(of *endpoint, sends bool, vec *vector, level datasheet.Reliability, most uint32) {
	if q.side = "send"; !sends {
		q.side = "receive"
	}
	q.n, q.of, q.sends, q.vec, q.level, q.most, q.wait = of.n, of, sends, vec, level, most, "wait for "+q.side+" ring"
	q.closedAs = q.n.error("use "+q.side+" ring", descriptors.ErrClosed)
}

// place says where the ring is in device memory, and its doorbells.
func (q *RingQueue) place(memory []byte, bell, armBell doorbell) {
	q.slots, q.bell, q.armBell = datasheet.RingSlotsAt(memory), bell, armBell
	q.mask = uint32(len(q.slots) - 1)
	q.posted = make([]datasheet.DataSegment, len(q.slots))
}

// Message returns the RingMessage bytes of entry i in device memory, nil once the ring is closed. They
// may be write-combining: reading them is slow. The device may write to those of a receive ring at
// any time. They die with the ring and with the NIC.
func (q *RingQueue) Message(i uint32) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	return q.slots[i&q.mask].Message[:]
}

// Put fills entry i, which is not posted. Up to RingMessage bytes of message are copied there; nil
// leaves what Message has been filled with. Put fails with ErrInvalidParameter for an entry that is
// posted or too far ahead, or for a message or payload that is too long.
func (q *RingQueue) Put(i uint32, message []byte, s RingEntry) error {
	if len(message) > datasheet.RingMessage || s.Length > s.Payload.Length || s.Payload.Length > q.most && q.sends {
		return q.n.refuse("put "+q.side, fmt.Errorf("%w: a message of %d bytes, %d bytes of a payload of %d", descriptors.ErrInvalidParameter, len(message), s.Length, s.Payload.Length), "")
	}
	control := datasheet.OpSend
	if s.Tagged {
		control = datasheet.ControlImmediate
	}
	segments := uint16(0)
	if s.Payload.Handle != 0 {
		segments = 1
	}
	q.mu.Lock()
	if q.closed || q.refuses {
		q.mu.Unlock()
		return q.closedAs
	}
	if i-q.next > q.mask || i-q.taken > q.mask {
		q.mu.Unlock()
		return q.n.refuse("put "+q.side, fmt.Errorf("%w: entry %d is posted, or beyond the ring", descriptors.ErrInvalidParameter, i), "")
	}
	q.posted[i&q.mask] = s.Payload
	if regions := &q.n.regions; segments > 0 && q.sends && regions.has(unusualEager) {
		q.eagers.source(s.Payload, regions) // the doorbell flushes
	}
	slot := &q.slots[i&q.mask]
	copy(slot.Message[:], message)
	// The words that the device checks: each is one store, in whatever order. The
	// flush before the doorbell sends them on their way.
	mmio.Write16(&slot.Segments, segments)
	mmio.Write16((*uint16)(&slot.Control), uint16(control))
	mmio.Write32(&slot.Tag, s.Tag)
	mmio.Write32(&slot.Length, s.Length)
	mmio.Write32(&slot.Status, 0)
	mmio.Write64(&slot.Payload.Address, s.Payload.Address)
	mmio.Write32(&slot.Payload.Handle, s.Payload.Handle)
	mmio.Write32(&slot.Payload.Length, s.Payload.Length)
	q.mu.Unlock()
	return nil
}

// Post hands the next count entries, which were put, to the device: one doorbell does for all. A
// device that does not take that has failed: then none is posted. Receives may be posted before the
// ring is connected.
func (q *RingQueue) Post(count int) error {
	q.mu.Lock()
	if q.closed || q.refuses {
		q.mu.Unlock()
		return q.closedAs
	}
	if room := q.mask + 1 - (q.next - q.taken); count < 1 || uint64(count) > uint64(room) {
		q.mu.Unlock()
		return q.n.refuse("post "+q.side, fmt.Errorf("%w: %d entries, of %d", descriptors.ErrInvalidParameter, count, room), "")
	}
	var err error
	switch next := q.next + uint32(count); {
	case q.path == nil:
		err = q.bell.ringSlots(next)
	case q.sends:
		q.path.Post(next)
	default:
		q.path.PostReceives(next)
	}
	if err == nil {
		q.next += uint32(count)
	}
	q.mu.Unlock()
	if err != nil {
		return q.n.error("post "+q.side, err)
	}
	if q.path == nil || q.n.regions.has(unusualPump) {
		q.n.posted()
	}
	return nil
}

// Done takes back the entry that was posted first, if it has completed. It fails with an error that
// wraps a *StatusError if it completed in error, and with ErrProtocol if the device wrote an
// impossible completion. It fails with ErrNotDone or ErrQueueEmpty (both bare), with ErrClosed, or
// with what is wrong with the device. Where something must be stepped it does that and looks again.
func (q *RingQueue) Done() (RingCompletion, error) {
	q.mu.Lock()
	defer q.mu.Unlock() // also if memory that the device needs is gone
	done, err := q.look()
	if !done && err == nil && q.progress(!q.sends) {
		done, err = q.look()
	}
	switch {
	case err != nil:
		return RingCompletion{}, err
	case !done:
		return RingCompletion{}, q.nothing()
	}
	return q.take()
}

// take takes the oldest entry, which has completed. mu is held, but not while the device is asked.
func (q *RingQueue) take() (c RingCompletion, err error) {
	slot := &q.slots[q.taken&q.mask]
	c.Index, c.Status = q.taken, datasheet.Status(mmio.Read32(&slot.Status))
	c.Tag, c.Length = mmio.Read32(&slot.Tag), mmio.Read32(&slot.Length)
	c.Sent, c.Place = mmio.Read32(&slot.Sent), int(mmio.Read32(&slot.Place))-1
	c.Tagged = c.Status&datasheet.StatusImmediate != 0
	frame := &q.posted[q.taken&q.mask]
	tooLong := c.Place < 0 && c.Length > frame.Length || c.Length > q.most || c.Sent > q.most || c.Place >= datasheet.PayloadEntries
	*frame = datasheet.DataSegment{}
	q.taken++
	switch {
	case c.Status&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0:
		q.mu.Unlock()
		err = q.completedBadly(c.Status)
		q.mu.Lock()
	case !q.sends && tooLong:
		err = q.n.error(q.side, fmt.Errorf("%w: completion of %d of %d bytes, more than there is room for, place %d", ErrProtocol, c.Length, c.Sent, c.Place))
	}
	return c, err
}

// look says whether the oldest entry has completed. mu is held.
func (q *RingQueue) look() (done bool, err error) {
	switch {
	case q.closed:
		return false, q.closedAs
	case q.taken == q.next:
		return false, descriptors.ErrQueueEmpty
	}
	if done = datasheet.Status(mmio.Read32(&q.slots[q.taken&q.mask].Status)).Done(); done {
		mmio.FromDevice()
	}
	return done, nil
}

// completedBadly says what is wrong with an entry that has completed with status.
func (q *RingQueue) completedBadly(status datasheet.Status) error {
	n := q.n
	if status&datasheet.StatusReserved == 0 {
		return n.error(q.side, &StatusError{Status: status, Ended: q.of.ended(q.level, status)})
	}
	// Of a device that is gone all bits are set.
	if err := n.check(); err != nil {
		return n.error(q.side, err)
	}
	return n.error(q.side, fmt.Errorf("%w: completion with reserved status bits: %v", ErrProtocol, status))
}

// Load copies the message of entry i, which has been taken and not been put again, into p: at most
// RingMessage bytes.
func (q *RingQueue) Load(i uint32, p []byte) error {
	p = p[:min(len(p), datasheet.RingMessage)]
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.closedAs
	}
	copy(p, q.slots[i&q.mask].Message[:])
	return nil
}

// Queued returns how many entries are posted and not taken back; zero once the ring is destroyed.
func (q *RingQueue) Queued() int { return q.queued() }

// Wait waits until Done would not say ErrNotDone, until early is set, or until ctx ends, with whose
// error it fails then. early may be nil.
func (q *RingQueue) Wait(ctx context.Context, early *Signal) error {
	return q.n.waitUntil(ctx, q.wait, early, q, q.vec, q.ready)
}

// ready reports whether Done has something else to say than ErrNotDone, and the error that
// it would say.
func (q *RingQueue) ready() (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	done, err := q.look()
	return done || err != nil, err
}

func (q *RingQueue) holds(handle uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, held := q.first(func(place uint32) bool { return q.posted[place].Handle == handle })
	return held
}

// close ends all use of the ring and of the doorbells.
func (q *RingQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.slots = nil
}
