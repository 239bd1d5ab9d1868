package driver

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// RingSend is the part of an entry of a send ring beside its message.
type RingSend struct {
	// Payload is attached to the entry: its handle is 0 for none.
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

// ringQueue is one of the two rings of a Ring.
type ringQueue struct {
	queue
	ring *Ring

	slots  []datasheet.RingSlot // nil if device memory is not mapped
	at     uint64               // offset of the first slot in BAR4
	posted []datasheet.DataSegment
	// scratch is for accesses to device memory that is not mapped.
	scratch [datasheet.RingSlotSize]byte
}

// Offsets in a slot (SPEC.md 15) of what follows the message, and of what completes it.
const (
	slotControl = datasheet.RingMessage
	slotStatus  = slotControl + 28
)

func (q *ringQueue) init(r *Ring, side string) {
	q.n, q.ring, q.side = r.n, r, side
	q.closedAs = r.n.error("use "+side+" ring", descriptors.ErrClosed)
}

// place says where the ring and its doorbells are.
func (q *ringQueue) place(at uint64, depth int, bell, armBell doorbell) {
	q.at, q.bell, q.armBell = at, bell, armBell
	q.mask = uint32(depth - 1)
	q.posted = make([]datasheet.DataSegment, depth)
	q.slots = datasheet.RingSlotsAt(q.n.bar4.mapped.Window(at, depth*datasheet.RingSlotSize))
}

// offset of entry i in BAR4.
func (q *ringQueue) offset(i uint32) uint64 {
	return q.at + uint64(i&q.mask)*datasheet.RingSlotSize
}

func (q *ringQueue) message(i uint32) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.slots == nil {
		return nil
	}
	return q.slots[i&q.mask].Message[:]
}

// put fills entry i, which is the program's.
func (q *ringQueue) put(i uint32, message []byte, s RingSend) error {
	if len(message) > datasheet.RingMessage || s.Length > s.Payload.Length || s.Payload.Length > q.ring.attributes.MaxPayload && q == &q.ring.send {
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
	if regions := &q.n.regions; segments > 0 && q == &q.ring.send && regions.eager.Load() {
		q.eagers.source(s.Payload, regions) // the doorbell flushes
	}
	var err error
	if q.slots != nil {
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
	} else {
		err = q.write(i, message, control, segments, &s)
	}
	q.mu.Unlock()
	if err != nil {
		return q.n.error("put "+q.side, err)
	}
	return nil
}

// write is the end of put where device memory is not mapped. mu is held.
func (q *ringQueue) write(i uint32, message []byte, control datasheet.Control, segments uint16, s *RingSend) error {
	b := q.scratch[:]
	clear(b[copy(b, message):])
	c := b[slotControl:]
	binary.LittleEndian.PutUint16(c[12:], segments)
	binary.LittleEndian.PutUint16(c[14:], uint16(control))
	binary.LittleEndian.PutUint32(c[20:], s.Tag)
	binary.LittleEndian.PutUint32(c[24:], s.Length)
	binary.LittleEndian.PutUint64(c[32:], s.Payload.Address)
	binary.LittleEndian.PutUint32(c[40:], s.Payload.Handle)
	binary.LittleEndian.PutUint32(c[44:], s.Payload.Length)
	return q.n.bar4.write(q.offset(i), b)
}

// post hands the next count entries to the device. A device that does not take that has
// failed: then none is posted.
func (q *ringQueue) post(count int) error {
	q.mu.Lock()
	if q.closed || q.refuses {
		q.mu.Unlock()
		return q.closedAs
	}
	if room := q.mask + 1 - (q.next - q.taken); count < 1 || uint64(count) > uint64(room) {
		q.mu.Unlock()
		return q.n.refuse("post "+q.side, fmt.Errorf("%w: %d entries, of %d", descriptors.ErrInvalidParameter, count, room), "")
	}
	err := q.bell.ringSlots(q.next + uint32(count))
	if err == nil {
		q.next += uint32(count)
	}
	q.mu.Unlock()
	if err != nil {
		return q.n.error("post "+q.side, err)
	}
	q.n.posted()
	return nil
}

// poll takes the oldest entry if it has completed. Where something must be stepped it does
// that and looks again.
func (q *ringQueue) poll() (RingCompletion, error) {
	q.mu.Lock()
	m, err := q.look()
	if m != 0 && q.step() {
		m, err = q.look()
	}
	if m != 0 {
		err = q.nothing(m)
	}
	if err != nil {
		q.mu.Unlock()
		return RingCompletion{}, err
	}
	return q.take()
}

// take takes the oldest entry, which has completed. mu is held, and given back.
func (q *ringQueue) take() (RingCompletion, error) {
	frame := &q.posted[q.taken&q.mask]
	c, err := q.completion()
	if err != nil {
		q.mu.Unlock()
		return RingCompletion{}, q.n.error(q.side, err)
	}
	tooLong := c.Place < 0 && c.Length > frame.Length || c.Length > q.ring.attributes.MaxPayload ||
		c.Sent > q.ring.attributes.MaxPayload || c.Place >= datasheet.PayloadEntries
	*frame = datasheet.DataSegment{}
	q.taken++
	q.mu.Unlock()
	switch {
	case c.Status&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0:
		return c, q.completedBadly(c.Status)
	case q == &q.ring.recv && tooLong:
		return c, q.n.error(q.side, fmt.Errorf("%w: completion of %d of %d bytes, more than there is room for, place %d", ErrProtocol, c.Length, c.Sent, c.Place))
	}
	return c, nil
}

// look says whether the oldest entry has completed. mu is held.
func (q *ringQueue) look() (miss, error) {
	switch {
	case q.closed:
		return 0, q.closedAs
	case q.taken == q.next:
		return 0, descriptors.ErrQueueEmpty
	}
	var status uint32
	if q.slots != nil {
		status = mmio.Read32(&q.slots[q.taken&q.mask].Status)
	} else {
		b := q.scratch[:4]
		if err := q.n.bar4.read(q.offset(q.taken)+slotStatus, b); err != nil {
			return 0, q.n.error(q.side, err)
		}
		status = binary.LittleEndian.Uint32(b)
	}
	if datasheet.Status(status).Done() {
		mmio.FromDevice()
		return 0, nil
	}
	return q.missed(), nil
}

// completion reads what the device has written of the oldest entry. mu is held.
func (q *ringQueue) completion() (RingCompletion, error) {
	c := RingCompletion{Index: q.taken}
	var place uint32
	if q.slots != nil {
		slot := &q.slots[q.taken&q.mask]
		c.Status = datasheet.Status(mmio.Read32(&slot.Status))
		c.Tag, c.Length = mmio.Read32(&slot.Tag), mmio.Read32(&slot.Length)
		c.Sent, place = mmio.Read32(&slot.Sent), mmio.Read32(&slot.Place)
	} else {
		b := q.scratch[slotControl:]
		if err := q.n.bar4.read(q.offset(q.taken)+slotControl, b); err != nil {
			return c, err
		}
		c.Tag, c.Length = binary.LittleEndian.Uint32(b[20:]), binary.LittleEndian.Uint32(b[24:])
		c.Status = datasheet.Status(binary.LittleEndian.Uint32(b[28:]))
		c.Sent, place = binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint32(b[52:])
	}
	c.Tagged = c.Status&datasheet.StatusImmediate != 0
	c.Place = int(place) - 1
	return c, nil
}

// completedBadly says what is wrong with an entry that has completed with status.
func (q *ringQueue) completedBadly(status datasheet.Status) error {
	n := q.n
	if status&datasheet.StatusReserved == 0 {
		return n.error(q.side, &StatusError{Status: status, Ended: q.ring.ended(q.ring.attributes.Reliability, status)})
	}
	// Of a device that is gone all bits are set.
	if err := n.check(); err != nil {
		return n.error(q.side, err)
	}
	return n.error(q.side, fmt.Errorf("%w: completion with reserved status bits: %v", ErrProtocol, status))
}

// load copies the message of entry i.
func (q *ringQueue) load(i uint32, p []byte) error {
	p = p[:min(len(p), datasheet.RingMessage)]
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return q.closedAs
	}
	if q.slots != nil {
		copy(p, q.slots[i&q.mask].Message[:])
		q.mu.Unlock()
		return nil
	}
	err := q.n.bar4.read(q.offset(i), q.scratch[:len(p)])
	copy(p, q.scratch[:])
	q.mu.Unlock()
	if err != nil {
		return q.n.error("read "+q.side, err)
	}
	return nil
}

func (q *ringQueue) holds(handle uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, held := q.first(func(place uint32) bool { return q.posted[place].Handle == handle })
	return held
}

// close ends all use of the ring and of the doorbells.
func (q *ringQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.slots = nil
}
