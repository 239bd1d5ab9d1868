package fakemqnic

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

var le = binary.LittleEndian

// Sent is a frame that was sent.
type Sent struct {
	Interface, Queue int
	Bytes            []byte // with the checksum that was asked for, padded to 60 bytes
	Command          uint16
}

// Completion is an entry of a completion ring.
type Completion struct {
	Queue, Index, Length uint16
	Sum                  uint16
	Hash                 uint32
	HashType             byte
}

// ring returns the memory of a queue whose entries have so many bytes, nil if nothing is mapped
// there.
func (d *Device) ring(q *queue, each uint32) []byte {
	return d.At(&q.window, q.base, int(q.size()*each))
}

// Complete writes a completion into a completion queue, whatever it says, inside With.
func (d *Device) Complete(k, number int, c Completion) {
	q := &d.interfaces[k].cq[number]
	ring := d.ring(q, 32)
	if !q.on || ring == nil {
		return
	}
	if uint32(q.producer-q.consumer) >= q.size() {
		d.Stray(fmt.Sprintf("completion queue %d overflows", number))
	}
	at := uint32(q.producer) & (q.size() - 1)
	b := ring[32*at:][:32]
	le.PutUint16(b[0:], c.Queue)
	le.PutUint16(b[2:], c.Index)
	le.PutUint16(b[4:], c.Length)
	le.PutUint16(b[14:], c.Sum)
	le.PutUint32(b[16:], c.Hash)
	b[20] = c.HashType
	le.PutUint32(b[28:], phase(uint32(q.producer), q.size()))
	q.producer++
	if q.armed {
		d.fire(q, place{k: k, kind: cq, i: number})
	}
}

// Event writes an event into an event queue, inside With.
func (d *Device) Event(k, number int, kind, source uint16) {
	q := &d.interfaces[k].eq[number]
	ring := d.ring(q, 32)
	if !q.on || ring == nil {
		return
	}
	at := uint32(q.producer) & (q.size() - 1)
	b := ring[32*at:][:32]
	le.PutUint16(b[0:], kind)
	le.PutUint16(b[2:], source)
	le.PutUint32(b[28:], phase(uint32(q.producer), q.size()))
	if q.producer++; q.armed {
		d.fire(q, place{k: k, kind: eq, i: number})
	}
}

// phase is bit 31 of the last word: 1 in the first pass through a ring, 0 in the second, and so on.
func phase(producer, size uint32) uint32 {
	if producer&size == 0 {
		return 1 << 31
	}
	return 0
}

// FlipPhase turns the phase of the entry of a completion queue that comes next, inside With.
func (d *Device) FlipPhase(k, number int) {
	q := &d.interfaces[k].cq[number]
	if ring := d.ring(q, 32); ring != nil {
		ring[32*(uint32(q.producer)&(q.size()-1))+31] ^= 1 << 7
	}
}

// transmit sends what a transmit queue holds, if its scheduler and port let it.
func (d *Device) transmit(k, i int) {
	q := &d.interfaces[k].tx[i]
	if !q.on || d.Get(d.Channel(k, i))&3 != 3 || d.Get(d.Control(k)+Scheduler+0x18)&1 == 0 || d.Get(d.PortControl(k)+0x10)&1 == 0 {
		return
	}
	each := uint32(16) << q.block
	ring := d.ring(q, each)
	if ring == nil {
		return
	}
	var done []Completion
	for q.consumer != q.producer {
		entry := ring[each*(uint32(q.consumer)&(q.size()-1)):][:each]
		if b := d.gather(entry); b != nil {
			d.out(k, i, le.Uint16(entry[2:]), b)
			done = append(done, Completion{Queue: uint16(i), Index: q.consumer, Length: uint16(len(b))})
		}
		q.consumer++
	}
	for n := range done {
		if d.Backward {
			n = len(done) - 1 - n
		}
		d.Complete(k, int(q.target), done[n])
	}
}

// gather reads the frame that the descriptors of a block hold.
func (d *Device) gather(entry []byte) (frame []byte) {
	for ; len(entry) >= 16; entry = entry[16:] {
		n := int(le.Uint32(entry[4:]))
		if n == 0 {
			continue
		}
		b := d.At(&d.window, le.Uint64(entry[8:]), n)
		if b == nil {
			return nil
		}
		frame = append(frame, b...)
	}
	return frame
}

// out puts a frame on the wire, with checksum and padding.
func (d *Device) out(k, i int, command uint16, frame []byte) {
	if uint32(len(frame)) > d.Get(d.Control(k)+0x28) {
		return
	}
	if start, field := int(command&0xff), int(command>>8&0x7f); command&(1<<15) != 0 && start+field+2 <= len(frame) {
		s := ^inetsum.Of(frame[start:])
		frame[start+field], frame[start+field+1] = byte(s>>8), byte(s)
	}
	for len(frame) < 60 {
		frame = append(frame, 0)
	}
	if d.OnSend != nil {
		d.OnSend(Sent{k, i, frame, command})
	}
}

// Deliver puts a frame into a receive queue, and reports whether there was room.
func (d *Device) Deliver(k, i int, frame []byte, c Completion) (delivered bool) {
	d.With(func() {
		q := &d.interfaces[k].rx[i]
		if !q.on || q.consumer == q.producer || d.Get(d.PortControl(k)+0x14)&1 == 0 || uint32(len(frame)) > d.Get(d.Control(k)+0x2c) {
			return
		}
		each := uint32(16) << q.block
		ring := d.ring(q, each)
		if ring == nil {
			return
		}
		entry := ring[each*(uint32(q.consumer)&(q.size()-1)):][:each]
		n := min(len(frame), int(le.Uint32(entry[4:])))
		b := d.At(&d.window, le.Uint64(entry[8:]), n)
		if b == nil {
			return
		}
		copy(b, frame)
		c.Queue, c.Index, c.Length = uint16(i), q.consumer, uint16(len(frame))
		q.consumer++
		d.Complete(k, int(q.target), c)
		delivered = true
	})
	return delivered
}

// Fill completes so many entries of a receive queue, without writing frames, as frames of a length.
// It is for a device that is Quick.
func (d *Device) Fill(k, i int, length uint16, most int) {
	q := &d.interfaces[k].rx[i]
	d.finish(k, q, i, length, min(most, int(q.producer-q.consumer)))
}

// Drain says that all of a transmit queue was sent. It is for a device that is Quick.
func (d *Device) Drain(k, i int) {
	q := &d.interfaces[k].tx[i]
	d.finish(k, q, i, 60, int(q.producer-q.consumer))
}

// finish completes the next n entries of a ring with the least that the driver looks at.
func (d *Device) finish(k int, q *queue, i int, length uint16, n int) {
	c := &d.interfaces[k].cq[q.target]
	ring := d.ring(c, 32)
	mask := c.size() - 1
	for range n {
		b := ring[32*(uint32(c.producer)&mask):][:32]
		le.PutUint64(b, uint64(i)|uint64(q.consumer)<<16|uint64(length)<<32)
		le.PutUint32(b[28:], phase(uint32(c.producer), mask+1))
		c.producer++
		q.consumer++
	}
}

// Take takes the next entry of a receive queue, and returns its index, inside With. Complete then
// says what became of it.
func (d *Device) Take(k, i int) uint16 {
	q := &d.interfaces[k].rx[i]
	q.consumer++
	return q.consumer - 1
}

// Refill does the least that the driver does to both rings of a queue: so many entries are the
// device's. It is for measuring what Fill and Drain take.
func (d *Device) Refill(k, i, n int) {
	f := &d.interfaces[k]
	f.rx[i].producer = f.rx[i].consumer + uint16(n)
	f.tx[i].producer = f.tx[i].consumer + uint16(n)
}
