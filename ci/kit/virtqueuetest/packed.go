package virtqueuetest

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/mmio"
)

type packedQueue struct {
	areas      Areas
	memory     Memory
	size       uint32
	eventIndex bool

	next, used         uint32
	nextWrap, usedWrap bool
	// pending are used descriptors that the driver does not see yet.
	pending []element
}

type element struct {
	at     uint32
	wrap   bool
	number uint16
	length uint32
}

func (q *packedQueue) available(flags uint16) bool {
	return flags&0x80 != 0 == q.nextWrap && flags&0x8000 != 0 != q.nextWrap
}

// step moves an index on.
func (q *packedQueue) step(index *uint32, wrap *bool, n uint32) {
	for range n {
		if *index++; *index == q.size {
			*index, *wrap = 0, !*wrap
		}
	}
}

func (q *packedQueue) Next() (b Buffer, ok bool, err error) {
	flags := mmio.Read16(pointer[uint16](q.areas.Descriptor, 16*q.next+14))
	if !q.available(flags) {
		return b, false, nil
	}
	mmio.FromDevice()
	c := chain{memory: q.memory}
	for {
		d := readDescriptor(q.areas.Descriptor, q.next)
		if !q.available(d.b) {
			return b, false, fmt.Errorf("%w: flags %#x in the middle of a list", ErrDriver, d.b)
		}
		if err := c.add(d, d.b&2 != 0); err != nil {
			return b, false, err
		}
		q.step(&q.next, &q.nextWrap, 1)
		if d.b&1 == 0 {
			return Buffer{d.a, c.parts, len(c.parts)}, true, nil
		}
		if len(c.parts) == int(q.size) {
			return b, false, fmt.Errorf("%w: a list without end", ErrDriver)
		}
	}
}

func (q *packedQueue) Use(b Buffer, length uint32) {
	q.pending = append(q.pending, element{q.used, q.usedWrap, b.Number, length})
	q.step(&q.used, &q.usedWrap, uint32(b.count))
}

func (q *packedQueue) Flush() bool {
	if len(q.pending) == 0 {
		return false
	}
	// The first becomes visible last.
	for i := len(q.pending) - 1; i >= 0; i-- {
		e := q.pending[i]
		mmio.Write32(pointer[uint32](q.areas.Descriptor, 16*e.at+8), e.length)
		mmio.Write16(pointer[uint16](q.areas.Descriptor, 16*e.at+12), e.number)
		mmio.ToDevice()
		flags := uint16(0)
		if e.wrap {
			flags = 0x8080
		}
		mmio.Write16(pointer[uint16](q.areas.Descriptor, 16*e.at+14), flags)
	}
	from, wrap := q.pending[0].at, q.pending[0].wrap
	q.pending = q.pending[:0]
	fence()
	offset := mmio.Read16(pointer[uint16](q.areas.Driver, 0))
	switch mmio.Read16(pointer[uint16](q.areas.Driver, 2)) & 3 {
	case 0:
		return true
	case 2:
		for from != q.used || wrap != q.usedWrap {
			if q.eventIndex && from == uint32(offset&0x7fff) && wrap == (offset&0x8000 != 0) {
				return true
			}
			q.step(&from, &wrap, 1)
		}
	}
	return false
}

func (q *packedQueue) Notifications(wanted bool) bool {
	flags := uint16(1)
	switch {
	case wanted && q.eventIndex:
		offset := uint16(q.next)
		if q.nextWrap {
			offset |= 0x8000
		}
		mmio.Write16(pointer[uint16](q.areas.Device, 0), offset)
		flags = 2
	case wanted:
		flags = 0
	}
	mmio.Write16(pointer[uint16](q.areas.Device, 2), flags)
	fence()
	return q.available(mmio.Read16(pointer[uint16](q.areas.Descriptor, 16*q.next+14)))
}
