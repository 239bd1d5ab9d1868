package engine_test

import (
	"bytes"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"ring": (*play).ring, "rings": (*play).ringPair, "slot": (*play).slot, "place": (*play).place, "bell": (*play).bell,
	"leave": (*play).leave, "zero": (*play).zero,
})

// ring is: ring NAME on NODE [handle=HANDLE] [FIELD=VALUE...].
func (p *play) ring(a *arguments) string {
	p.t.Helper()
	n := p.node(a.Words[2])
	handle := uint32(a.number("handle", uint64(p.handle(n))))
	r := n.newRing(handle, func(b *datasheet.CreateEndpointBody) { p.change(b, a.Changes...) })
	p.addRing(a.Words[0], r)
	return ""
}

func (p *play) addRing(name string, r *ring) {
	p.rings[name] = r
	p.addEnd(name, &vi{n: r.n, id: r.id, handle: r.memory})
	for field, at := range map[string]uint32{"memory": r.handle, "send": r.at.Send, "recv": r.at.Recv, "table": r.at.Table,
		"bytes": r.at.Table + datasheet.PayloadEntries*datasheet.RingPlaceSize - r.at.Send} {
		p.numbers[name+"."+field] = uint64(at)
	}
}

// ringPair is: rings [FIELD=VALUE...]. It connects a ring v of node a with a ring p of node b.
func (p *play) ringPair(a *arguments) string {
	for name, on := range map[string]string{"v": "a", "p": "b"} {
		p.ring(&arguments{p: p, Arguments: &script.Arguments{Words: []string{name, "on", on}, Changes: a.Changes}})
	}
	connect(p.ends["v"], p.ends["p"])
	return ""
}

// slot is: slot RING send|recv NAMES [SIZE] [tag=TAG] [FIELD=VALUE...]. Without a size it has no payload, or no frame for one.
// What is not said is as it should be.
func (p *play) slot(a *arguments) string {
	p.t.Helper()
	r, recv := p.rings[a.Words[0]], a.Words[1] == "recv"
	tag := a.number("tag", 0)
	for _, name := range script.Span(a.Words[2]) {
		i := p.add(&item{name: name, v: p.ends[a.Words[0]], recv: recv})
		var payload *datasheet.DataSegment
		if len(a.Words) > 3 {
			mem, s := r.frame(int(p.value(a.Words[3])))
			i.bufs, payload = [][]byte{mem}, &s
		}
		i.data = pattern(ringMessage, p.seed())
		if recv {
			i.op, i.data, i.slot = datasheet.StatusOpReceive, nil, r.nextRecv()
			fill(i.slot, nil, payload, 0)
		} else {
			i.slot = r.nextSend()
			length := uint32(0)
			if payload != nil {
				copy(i.bufs[0], i.payload())
				length = payload.Length
			}
			fill(i.slot, i.data, payload, length)
			if tag != 0 {
				i.slot.Control, i.slot.Tag = datasheet.ControlImmediate, uint32(tag)
			}
		}
		p.setOf(i, a.Changes)
		if recv {
			r.postRecv()
		} else {
			r.postSend()
		}
	}
	return ""
}

// payload returns the part of a frame that a send slot has.
func (i *item) payload() []byte {
	if len(i.bufs) == 0 {
		return nil
	}
	seed := uint64(0)
	for _, c := range i.name {
		seed = 31*seed + uint64(c)
	}
	return pattern(len(i.bufs[0]), seed)
}

// slotText says what a slot's message and payload are.
func (i *item) slotText() (s string) {
	st := i.status()
	if !i.recv || !st.Done() {
		return ""
	}
	frame := bytes.Join(i.bufs, nil)
	if st&datasheet.StatusImmediate != 0 {
		s += fmt.Sprintf(" %#x", i.slot.Tag)
	}
	if i.slot.Place != 0 {
		s += fmt.Sprintf(", at place %d", i.slot.Place)
	}
	length := int(i.slot.Length)
	written := bytes.Count(frame, []byte{0}) != len(frame)
	switch {
	case i.slot.Place == 0 && length > 0 && length == int(i.slot.Sent) && length <= len(frame):
		s += ", payload " + i.in.payloadOwner(frame[:length])
		if bytes.Count(frame[length:], []byte{0}) != len(frame)-length {
			s += ", bytes behind it written"
		}
	case written:
		s += ", its frame was written"
		fallthrough
	default:
		s += fmt.Sprintf(", %d bytes of %d", length, i.slot.Sent)
	}
	if st.Failed() {
		return s
	}
	return s + ", message " + i.in.owner(i.slot.Message[:], i)
}

func (p *play) payloadOwner(b []byte) string {
	for _, i := range p.order {
		if i.slot != nil && !i.recv && bytes.Equal(i.payload(), b) {
			return "all of " + i.name
		}
	}
	return "of no one, " + sample(b)
}

// place is: place RING NAME TAG SIZE [FIELD=VALUE...]. The payloads of messages with the tag are to go to new memory.
// landed shows that.
func (p *play) place(a *arguments) string {
	r, tag := p.rings[a.Words[0]], uint32(p.value(a.Words[2]))
	mem := r.place(tag, int(p.value(a.Words[3])))
	p.targets[a.Words[1]] = target{mem: mem}
	p.change(&r.table[tag%datasheet.PayloadEntries], a.Changes...)
	return ""
}

// bell is: bell RING OFFSET VALUE.
func (p *play) bell(a *arguments) string {
	r := p.rings[a.Words[0]]
	r.n.e.Doorbell(r.bell(p.value(a.Words[1])), uint32(p.value(a.Words[2])))
	return ""
}

// leave disconnects and destroys a ring.
func (p *play) leave(a *arguments) string {
	p.rings[a.Words[0]].destroy()
	delete(p.ends, a.Words[0])
	return ""
}

// zero is: zero NODE FROM BYTES. It says whether device memory there is zero; spoil writes it.
func (p *play) zero(a *arguments) string {
	spoil := a.Flag("spoil")
	n, from, size := p.node(a.Words[0]), p.value(a.Words[1]), p.value(a.Words[2])
	mem := n.sram[from:][:size]
	s := fmt.Sprintf("device memory is zero: %v", bytes.Count(mem, []byte{0}) == len(mem))
	for i := range mem {
		if spoil {
			mem[i] = 0xee
		}
	}
	return s
}
