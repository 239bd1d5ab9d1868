package fakeigb

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
)

// address reads an address from two registers.
func (d *Device) address(low uint64) uint64 {
	return uint64(d.Get(low+4))<<32 | uint64(d.Get(low))
}

// Sent is a frame that was sent.
type Sent struct {
	Queue int
	Bytes []byte
	// Descriptor, and Context if there was one, as the driver wrote them.
	Descriptor, Context [2]uint64
}

// sendAll takes what a send ring holds. mu is held, or the caller alone has the device.
func (d *Device) sendAll(queue int) {
	o, r := 0x40*uint64(queue), &d.rings[queue]
	slots := d.Get(TDLEN+o) / 16
	if d.Get(TXDCTL+o)&(1<<25) == 0 || !d.virtual() && d.Get(TCTL)&2 == 0 || slots == 0 {
		return
	}
	head, tail := d.Get(TDH+o), d.Get(TDT+o)
	if head == tail || tail >= slots {
		return
	}
	ring := d.At(&r.send, d.address(TDBAL+o), int(16*slots))
	if ring == nil {
		return
	}
	le := binary.LittleEndian
	report := false
	var memory fakepci.Window
	for ; head != tail; head = (head + 1) % slots {
		low, high := le.Uint64(ring[16*head:]), le.Uint64(ring[16*head+8:])
		report = report || high&(1<<27) != 0
		if high>>20&3 == 2 {
			r.contexts[0] = [2]uint64{low, high}
			continue
		}
		d.Set(GPTC, d.Get(GPTC)+1)
		if d.OnSend == nil {
			continue
		}
		if b := d.At(&memory, low, int(high&0xffff)); b != nil {
			d.OnSend(Sent{queue, append([]byte(nil), b...), [2]uint64{low, high}, r.contexts[0]})
		}
	}
	d.Set(TDH+o, head)
	if report {
		d.ReportHead(queue, head)
		if c := d.cause(queue, true); c != 0 {
			d.raise(c)
		}
	}
}

// ReportHead writes how far a send ring is to where the driver wants it, inside With.
func (d *Device) ReportHead(queue int, head uint32) {
	at := d.address(TDWBAL + 0x40*uint64(queue))
	if at&1 == 0 {
		return
	}
	if b := d.At(&fakepci.Window{}, at&^3, 4); b != nil {
		binary.LittleEndian.PutUint32(b, head)
	}
}

// Status bits of received descriptors.
const (
	Done, End, VLAN             = 1 << 0, 1 << 1, 1 << 3
	L4Checked, IPChecked        = 1 << 5, 1 << 6
	L4Bad, IPBad, Error  uint64 = 1 << 29, 1 << 30, 1 << 31
)

// receiveRing returns the memory of a receive ring, nil if nothing is mapped there, and its number of descriptors.
func (d *Device) receiveRing(queue int) (ring []byte, slots uint32) {
	o := 0x40 * uint64(queue)
	slots = d.Get(RDLEN+o) / 16
	return d.At(&d.rings[queue].receive, d.address(RDBAL+o), int(16*slots)), slots
}

// put writes a descriptor.
func put(at []byte, low, high uint64) {
	binary.LittleEndian.PutUint64(at, low)
	binary.LittleEndian.PutUint64(at[8:], high)
}

// Complete writes a descriptor back into a receive ring, whatever it says, inside With. It
// returns the address of the buffer; ok is false if the ring is empty.
func (d *Device) Complete(queue int, low, high uint64) (buffer uint64, ok bool) {
	o := 0x40 * uint64(queue)
	head := d.Get(RDH + o)
	if d.Get(RXDCTL+o)&(1<<25) == 0 || d.Get(RDLEN+o)/16 == 0 || head == d.Get(RDT+o) {
		return 0, false
	}
	ring, slots := d.receiveRing(queue)
	if ring == nil {
		return 0, false
	}
	buffer = binary.LittleEndian.Uint64(ring[16*head:])
	put(ring[16*head:], low, high)
	d.Set(RDH+o, (head+1)%slots)
	return buffer, true
}

// Unposted writes the one descriptor of a ring that the device does not have, as the tail
// points to it, inside With.
func (d *Device) Unposted(queue int, low, high uint64) {
	if ring, _ := d.receiveRing(queue); ring != nil {
		put(ring[16*d.Get(RDT+0x40*uint64(queue)):], low, high)
	}
}

// Again writes the descriptor before the next one back once more, inside With.
func (d *Device) Again(queue int, low, high uint64) {
	if ring, slots := d.receiveRing(queue); ring != nil {
		put(ring[16*((d.Get(RDH+0x40*uint64(queue))+slots-1)%slots):], low, high)
	}
}

// Deliver puts a frame into a receive ring, whatever the filters say, with more status
// bits and the upper words of the descriptor. It reports whether there was room.
func (d *Device) Deliver(queue int, frame []byte, status uint64, vlan uint16, low uint64) (delivered bool) {
	d.With(func() {
		size := int(d.Get(SRRCTL+0x40*uint64(queue))&0x7f) * 1024
		if size == 0 {
			return
		}
		for {
			n := min(len(frame), size)
			high := Done | status | uint64(n)<<32 | uint64(vlan)<<48
			if n == len(frame) {
				high |= End
			}
			// The frame is written first, and the descriptor handed over with it: the driver
			// looks when it likes.
			o := 0x40 * uint64(queue)
			head := d.Get(RDH + o)
			if d.Get(RXDCTL+o)&(1<<25) == 0 || d.Get(RDLEN+o)/16 == 0 || head == d.Get(RDT+o) {
				d.Set(RQDPC0+o, d.Get(RQDPC0+o)+1)
				return
			}
			ring, _ := d.receiveRing(queue)
			if ring == nil {
				return
			}
			if b := d.At(&fakepci.Window{}, binary.LittleEndian.Uint64(ring[16*head:]), size); b != nil {
				copy(b, frame[:n])
			}
			d.Complete(queue, low, high)
			if frame = frame[n:]; len(frame) == 0 {
				break
			}
		}
		delivered = true
		d.Set(GPRC, d.Get(GPRC)+1)
		if c := d.cause(queue, false); c != 0 {
			d.raise(c)
		}
	})
	return delivered
}

// Fill completes all that a receive ring holds, without writing frames, as frames of a
// length; it is for a device that is mapped, and for one goroutine.
func (d *Device) Fill(queue int, length uint16, most int) {
	o := 0x40 * uint64(queue)
	ring, slots := d.receiveRing(queue)
	if ring == nil {
		return
	}
	head, tail := d.Get(RDH+o), d.Get(RDT+o)
	high := Done | End | uint64(length)<<32
	for ; head != tail && most > 0; most-- {
		put(ring[16*head:], 0, high)
		head = (head + 1) & (slots - 1)
	}
	d.Set(RDH+o, head)
}

// Drain says that all of a send ring was sent; it is for a device that is mapped, and for
// one goroutine.
func (d *Device) Drain(queue int) {
	o := 0x40 * uint64(queue)
	tail := d.Get(TDT + o)
	d.Set(TDH+o, tail)
	if b := d.At(&d.rings[queue].send, d.address(TDWBAL+o)&^3, 4); b != nil {
		binary.LittleEndian.PutUint32(b, tail)
	}
}

// Refill does the least of a driver's work on a receive ring: the tail follows the
// head. It is for measuring what Fill takes.
func (d *Device) Refill(queue int) {
	o := 0x40 * uint64(queue)
	slots := d.Get(RDLEN+o) / 16
	d.Set(RDT+o, (d.Get(RDH+o)+slots-1)%slots)
}
