package engine_test

import (
	"bytes"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"ring": (*play).ring, "rings": (*play).ringPair, "slot": (*play).slot, "place": (*play).place, "bell": (*play).bell,
	"leave": (*play).leave, "zero": (*play).zero,
})

// ring is: ring NAME on NODE [handle=HANDLE] [FIELD=VALUE...].
func (p *play) ring(a *arguments) string {
	p.t.Helper()
	n := p.node(a.words[2])
	handle := uint32(a.number("handle", uint64(p.handle(n))))
	r := n.newRing(handle, func(b *datasheet.CreateEndpointBody) { p.change(b, a.changes...) })
	p.addRing(a.words[0], r)
	return ""
}

func (p *play) addRing(name string, r *ring) {
	p.rings[name] = r
	p.addEnd(name, &vi{n: r.n, id: r.id, handle: r.memory})
	for field, at := range map[string]uint32{"memory": r.handle, "send": r.at.Send, "recv": r.at.Recv, "table": r.at.Table} {
		p.numbers[name+"."+field] = uint64(at)
	}
}

// ringPair is: rings [FIELD=VALUE...]. It connects a ring v of node a with a ring p of node b.
func (p *play) ringPair(a *arguments) string {
	for name, on := range map[string]string{"v": "a", "p": "b"} {
		p.ring(&arguments{p: p, words: []string{name, "on", on}, changes: a.changes})
	}
	connect(p.ends["v"], p.ends["p"])
	return ""
}

// slot is: slot RING send|recv NAMES [SIZE] [tag=TAG] [FIELD=VALUE...]. Without a size it has no payload, or no frame for one.
// What is not said is as it should be.
func (p *play) slot(a *arguments) string {
	p.t.Helper()
	r, recv := p.rings[a.words[0]], a.words[1] == "recv"
	tag := a.number("tag", 0)
	for _, name := range span(a.words[2]) {
		i := p.add(&item{name: name, v: p.ends[a.words[0]], recv: recv})
		var payload *datasheet.DataSegment
		if len(a.words) > 3 {
			mem, s := r.frame(int(p.value(a.words[3])))
			i.bufs, payload = [][]byte{mem}, &s
		}
		i.data = pattern(ringMessage, uint64(len(p.order)))
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
		p.setOf(i, a.changes)
		if recv {
			r.postRecv()
		} else {
			r.postSend()
		}
	}
	return ""
}

// payload is what a send slot has in its frame.
func (i *item) payload() []byte {
	if len(i.bufs) == 0 {
		return nil
	}
	return pattern(len(i.bufs[0]), uint64(len(i.name))+uint64(i.name[len(i.name)-1]))
}

// slotText says what a slot's message and payload are.
func (i *item) slotText() (s string) {
	st := i.status()
	if !i.recv || !st.Done() {
		return ""
	}
	frame := bytes.Join(i.bufs, nil)
	if s = fmt.Sprintf(", %d bytes of %d at place %d", i.slot.Length, i.slot.Sent, i.slot.Place); st&datasheet.StatusImmediate != 0 {
		s += fmt.Sprintf(", tag %#x", i.slot.Tag)
	}
	if n := len(frame) - bytes.Count(frame, []byte{0}); n > 0 && i.slot.Place == 0 && int(i.slot.Length) <= len(frame) {
		s += ", payload" + i.in.payloadOwner(frame[:i.slot.Length])
		if bytes.Count(frame[i.slot.Length:], []byte{0}) != len(frame)-int(i.slot.Length) {
			s += ", bytes behind it written"
		}
	} else if n > 0 {
		s += ", and its frame was written"
	}
	if st.Failed() {
		return s
	}
	return s + ", message" + i.in.owner(i.slot.Message[:], i)
}

func (p *play) payloadOwner(b []byte) string {
	for _, i := range p.order {
		if i.slot != nil && !i.recv && bytes.Equal(i.payload(), b) {
			return " of " + i.name
		}
	}
	return " of no one: " + sample(b)
}

// place is: place RING NAME TAG SIZE [FIELD=VALUE...]. The payloads of messages with the tag are to go to new memory.
// landed shows that.
func (p *play) place(a *arguments) string {
	r, tag := p.rings[a.words[0]], uint32(p.value(a.words[2]))
	mem := r.place(tag, int(p.value(a.words[3])))
	p.targets[a.words[1]] = target{mem: mem}
	p.change(&r.table[tag%datasheet.PayloadEntries], a.changes...)
	return ""
}

// bell is: bell RING OFFSET VALUE.
func (p *play) bell(a *arguments) string {
	r := p.rings[a.words[0]]
	r.n.e.Doorbell(r.bell(p.value(a.words[1])), uint32(p.value(a.words[2])))
	return ""
}

// leave disconnects and destroys a ring.
func (p *play) leave(a *arguments) string {
	p.rings[a.words[0]].destroy()
	delete(p.ends, a.words[0])
	return ""
}

// zero is: zero NODE FROM BYTES. It says whether device memory there is zero, and writes it.
func (p *play) zero(a *arguments) string {
	n, from, size := p.node(a.words[0]), p.value(a.words[1]), p.value(a.words[2])
	mem := n.sram[from:][:size]
	s := fmt.Sprintf("device memory is zero: %v", bytes.Count(mem, []byte{0}) == len(mem))
	for i := range mem {
		mem[i] = 0xee
	}
	return s
}
