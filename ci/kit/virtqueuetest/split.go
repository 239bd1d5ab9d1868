package virtqueuetest

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/mmio"
)

type splitQueue struct {
	areas      Areas
	memory     Memory
	size       uint32
	eventIndex bool

	next, used, shown uint16
}

func (q *splitQueue) Next() (b Buffer, ok bool, err error) {
	index := mmio.Read16(pointer[uint16](q.areas.Driver, 2))
	mmio.FromDevice()
	if index == q.next {
		return b, false, nil
	}
	if uint32(index-q.next) > q.size {
		return b, false, fmt.Errorf("%w: index %d after %d", ErrDriver, index, q.next)
	}
	head := mmio.Read16(pointer[uint16](q.areas.Driver, 4+2*(uint32(q.next)%q.size)))
	q.next++
	c := chain{memory: q.memory}
	for n := head; ; {
		if uint32(n) >= q.size || len(c.parts) == int(q.size) {
			return b, false, fmt.Errorf("%w: descriptor %d, after %d", ErrDriver, n, len(c.parts))
		}
		d := readDescriptor(q.areas.Descriptor, uint32(n))
		if err := c.add(d, d.a&2 != 0); err != nil {
			return b, false, err
		}
		if d.a&1 == 0 {
			return Buffer{head, c.parts, len(c.parts)}, true, nil
		}
		n = d.b
	}
}

func (q *splitQueue) Use(b Buffer, length uint32) {
	at := 4 + 8*(uint32(q.used)%q.size)
	mmio.Write32(pointer[uint32](q.areas.Device, at), uint32(b.Number))
	mmio.Write32(pointer[uint32](q.areas.Device, at+4), length)
	q.used++
}

func (q *splitQueue) Flush() bool {
	old := q.shown
	if old == q.used {
		return false
	}
	q.shown = q.used
	mmio.ToDevice()
	mmio.Write16(pointer[uint16](q.areas.Device, 2), q.used)
	fence()
	if !q.eventIndex {
		return mmio.Read16(pointer[uint16](q.areas.Driver, 0)) == 0
	}
	event := mmio.Read16(pointer[uint16](q.areas.Driver, 4+2*q.size))
	for i := old; i != q.used; i++ {
		if i == event {
			return true
		}
	}
	return false
}

func (q *splitQueue) Notifications(wanted bool) bool {
	if q.eventIndex {
		event := q.next
		if !wanted {
			event--
		}
		mmio.Write16(pointer[uint16](q.areas.Device, 4+8*q.size), event)
	} else {
		flags := uint16(1)
		if wanted {
			flags = 0
		}
		mmio.Write16(pointer[uint16](q.areas.Device, 0), flags)
	}
	fence()
	return mmio.Read16(pointer[uint16](q.areas.Driver, 2)) != q.next
}
