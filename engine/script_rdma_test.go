package engine_test

import (
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"hostile": (*play).hostile, "rdma": (*play).rdmaFrame, "sendraw": (*play).sendRaw, "end-of-wire": (*play).endOfWire,
	"framesonly": (*play).framesOnly, "flushes": (*play).flushes,
})

// hostile is: hostile RIGHTS [exact]. It is impostor with RDMA. VI p allows what RIGHTS say. Its host has the targets open, readonly
// and local, foreign of another tag, and gone, which is deregistered. Each has 4096 bytes. A read of p, named under, waits for the
// impostor's response.
func (p *play) hostile(a *arguments) string {
	p.hostileRDMA = newHostileRDMAOf(p.t, datasheet.Access(p.value(a.Words[0])), p.options(a.Words[1:])...)
	x := p.hostileRDMA
	p.x, p.w = x.impostor, x.w
	for _, n := range p.nodes(nil) {
		p.numbers[p.nameOf(n)+".mem"] = uint64(map[*node]*vi{p.w.a: x.v, p.w.b: x.p}[n].handle)
	}
	p.addEnd("v", x.v)
	p.addEnd("p", x.p)
	p.targets = map[string]target{"open": x.open, "readonly": x.readOnly, "local": x.local, "foreign": x.foreign, "gone": x.gone}
	for i := range x.into {
		x.into[i] = fillByte
	}
	p.add(&item{name: "under", v: x.p, d: x.read, bufs: [][]byte{x.into}, recv: true, op: datasheet.StatusOpRDMARead})
	p.numbers["request"] = uint64(x.request)
	p.counts["b"+datasheet.CounterFramesDropped.String()] = p.w.b.e.Counter(datasheet.CounterFramesDropped)
	return ""
}

// rdmaFrame is: rdma write|read|response EXTENT OFFSET LENGTH [TARGET [OFFSET]] [psn=N] [flags=FLAGS] [address=A] [handle=H]
// [request=PSN]. The impostor sends a frame with LENGTH bytes of 7.
func (p *play) rdmaFrame(a *arguments) string {
	p.t.Helper()
	var e datasheet.Extension
	if len(a.Words) > 4 {
		t := p.targets[a.Words[4]]
		e.Address, e.Handle = t.address, t.handle
	}
	if len(a.Words) > 5 {
		e.Address += p.value(a.Words[5])
	}
	e.Address = a.number("address", e.Address)
	e.Handle = uint32(a.number("handle", uint64(e.Handle)))
	e.Request = uint32(a.number("request", 0))
	psn, flags := uint32(a.number("psn", 0)), datasheet.FrameFlags(a.number("flags", 0))
	n := p.sizes(a.Words[1:4])
	for _, c := range a.Changes {
		p.change(&p.x.good, c)
	}
	p.hostileRDMA.rdma(frameTypes[a.Words[0]], psn, flags, uint32(n[0]), uint32(n[1]), n[2], e)
	return ""
}

// sendRaw is: sendraw VI NAMES SIZES to=MAC [ours] [imm=N]. Frames are raw, or have our EtherType. A receiver has
// short ones filled up to the shortest frame of an Ethernet.
func (p *play) sendRaw(a *arguments) string {
	p.t.Helper()
	ours := a.Flag("ours")
	to, _ := a.Option("to")
	mac := p.mac(to)
	v := p.endpoint(a.Words[0])
	var made []*item
	for _, name := range script.Span(a.Words[1]) {
		i := p.add(&item{name: name, v: v})
		sizes := p.sizes(a.Words[2:])
		total := 0
		for _, n := range sizes {
			total += n
		}
		i.d, i.bufs = v.descriptor(sizes...)
		i.data = rawFrame(mac[:], total, p.seed())
		if ours {
			copy(i.data[12:], datasheet.EtherType[:])
		}
		rest := i.data
		for _, b := range i.bufs {
			rest = rest[copy(b, rest):]
		}
		i.data = append(i.data, make([]byte, max(0, datasheet.MinFrame-total))...)
		made = append(made, i)
	}
	return p.finish(a, false, false, made)
}

// endOfWire has the other end of an exact wire go.
func (p *play) endOfWire(*arguments) string {
	p.exacts[0].wire.number = 0
	return ""
}

// lengthText says how long a send says that it is, where that is not what it sends.
func (i *item) lengthText() string {
	if n := int(i.d.Length()); i.status().Done() && !i.status().Failed() && n != len(i.data) && !strings.HasPrefix(i.name, "raw") {
		return fmt.Sprintf(", length %d", n)
	}
	return ""
}

// framesOnly has an exact wire have no words for credit.
func (p *play) framesOnly(*arguments) string {
	p.exacts[0].wire.framesOnly = true
	return ""
}

// flushes says how often node a has published frames since it last was asked, and how many frames are on the wire.
func (p *play) flushes(a *arguments) string {
	n := p.w.a.port.flushed - int(p.counts["flushed"])
	p.counts["flushed"] = uint64(p.w.a.port.flushed)
	if a.Flag("reset") {
		return ""
	}
	return fmt.Sprintf("%d publications, %d frames on the wire", n, len(*p.w.a.port.out))
}
