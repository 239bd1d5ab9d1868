package driver_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *script.Arguments) string{
	"descriptor": (*play).lay, "rearm": (*play).rearm, "own": (*play).own, "post": (*play).post, "batch": (*play).batch, "take": (*play).take,
	"take-wait": (*play).takeWait, "poll": (*play).poll, "poll-wait": (*play).pollWait, "queued": (*play).queued, "run": (*play).poke,
	"marks": (*play).marks, "token": (*play).token,
	"put": (*play).put, "post-ring": (*play).postRing, "take-ring": (*play).takeRing, "place": (*play).place, "same": (*play).same, "mapped": (*play).mapped, "wait-ring": (*play).waitRing,
})

// lay is: descriptor NAME MEMORY OFFSET LENGTH [address=] [handle=] [status=]; descriptor NAME nil or zero.
func (p *play) lay(a *script.Arguments) string {
	name := a.Words[0]
	switch a.Words[1] {
	case "nil":
		p.ds[name] = nil
		return ""
	case "zero":
		p.ds[name] = new(descriptors.Descriptor)
		return ""
	}
	m, offset := p.mems[a.Words[1]], int(p.value(a.Words[2]))
	address, elsewhere := a.Option("address")
	handle, other := a.Option("handle")
	if !elsewhere && !other {
		p.ds[name] = descriptor(p.t, m, offset, int(p.value(a.Words[3])))
	} else {
		at, h := m.Address()+uint64(offset), m.Handle()
		if elsewhere {
			at = p.value(address)
		}
		if other {
			h = uint32(p.value(handle))
		}
		d := must.Get(descriptors.NewDescriptor(m.Bytes()[offset:][:64], at, h))(p.t)
		p.ds[name] = d
	}
	if s, ok := a.Option("status"); ok {
		p.ds[name].Control().StoreStatus(datasheet.Status(p.value(s)))
	}
	return ""
}

// named returns descriptors by names such as d0..2.
func (p *play) named(words []string) (names []string, ds []*descriptors.Descriptor) {
	for _, w := range words {
		for _, name := range script.Span(w) {
			names, ds = append(names, name), append(ds, p.descriptor(name))
		}
	}
	return names, ds
}

func (p *play) rearm(a *script.Arguments) string {
	_, ds := p.named(a.Words)
	for _, d := range ds {
		d.Rearm()
	}
	return ""
}

// own is: own VI DESCRIPTOR.
func (p *play) own(a *script.Arguments) string {
	p.vis[a.Words[0]].Own(p.descriptor(a.Words[1]))
	return ""
}

// post is: post VIS send|recv|both DESCRIPTORS, one by one.
func (p *play) post(a *script.Arguments) (lines string) {
	names, ds := p.named(a.Words[2:])
	for _, vi := range script.Span(a.Words[0]) {
		v := p.vis[vi]
		sides := []string{a.Words[1]}
		if sides[0] == "both" {
			sides = []string{"send", "recv"}
		}
		for _, side := range sides {
			f := v.PostSend
			if side == "recv" {
				f = v.PostRecv
			}
			last, alike := "", []string(nil)
			flush := func() {
				if last != "" {
					lines += "post " + script.Fold(alike) + " to " + vi + " " + side + ": " + last + "\n"
				}
				alike = nil
			}
			for i, d := range ds {
				if out := say(f(d)); out != last {
					flush()
					last = out
				}
				alike = append(alike, names[i])
			}
			flush()
		}
	}
	return lines
}

// batch is: batch VI send|recv DESCRIPTORS, at once.
func (p *play) batch(a *script.Arguments) string {
	v := p.vis[a.Words[0]]
	_, ds := p.named(a.Words[2:])
	f := v.PostSendBatch
	if a.Words[1] == "recv" {
		f = v.PostRecvBatch
	}
	n, err := f(ds)
	if err != nil {
		return fmt.Sprintf("batch: %d of %d posted, %s", n, len(ds), say(err))
	}
	return fmt.Sprintf("batch: %d of %d posted", n, len(ds))
}

func (p *play) nameOf(d *descriptors.Descriptor) string {
	for name, other := range p.ds {
		if d == other {
			return name
		}
	}
	return "unknown"
}

func (p *play) taken(what string, d *descriptors.Descriptor, err error) string {
	if d == nil {
		return outcome(what, err)
	}
	out := fmt.Sprintf("%s: %s, %d bytes, %v", what, p.nameOf(d), d.Length(), d.Status())
	if err != nil {
		out += "; " + say(err)
	}
	return out
}

// take is: take VI send|recv [COUNT], or take VI send many, at once.
func (p *play) take(a *script.Arguments) (lines string) {
	v, times := p.vis[a.Words[0]], 1
	if a.Flag("many") {
		into := make([]*descriptors.Descriptor, 3)
		n, err := v.SendDoneBatch(into)
		return fmt.Sprintf("%d taken; %s", n, say(err))
	}
	if len(a.Words) > 2 {
		times, _ = strconv.Atoi(a.Words[2])
	}
	for range times {
		f := v.SendDone
		if a.Words[1] == "recv" {
			f = v.RecvDone
		}
		d, err := f()
		lines += p.taken(a.Words[0]+" "+a.Words[1], d, err) + "\n"
	}
	return lines
}

// takeWait is: take-wait VI send|recv.
func (p *play) takeWait(a *script.Arguments) string {
	v := p.vis[a.Words[0]]
	f := v.SendWait
	if a.Words[1] == "recv" {
		f = v.RecvWait
	}
	d, err := f(p.context(a))
	return p.taken(a.Words[0]+" "+a.Words[1], d, err)
}

func (p *play) polled(name string, c driver.Completion, err error) string {
	if err != nil {
		return outcome(name, err)
	}
	of := "a VI that has gone"
	for vi, v := range p.vis {
		if v == c.VI {
			of = vi
		}
	}
	side := "send"
	if c.Queue == driver.RecvQueue {
		side = "recv"
	}
	out := fmt.Sprintf("%s: %s %s %d", name, of, side, c.Index)
	if c.Descriptor != nil {
		out += ", " + p.taken("with", c.Descriptor, c.Err)
	}
	return out
}

// poll is: poll CQ [COUNT].
func (p *play) poll(a *script.Arguments) (lines string) {
	times := 1
	if len(a.Words) > 1 {
		times, _ = strconv.Atoi(a.Words[1])
	}
	for range times {
		c, err := p.cqs[a.Words[0]].Done()
		lines += p.polled(a.Words[0], c, err) + "\n"
	}
	return lines
}

// pollWait is: poll-wait CQ.
func (p *play) pollWait(a *script.Arguments) string {
	c, err := p.cqs[a.Words[0]].Wait(p.context(a))
	return p.polled(a.Words[0], c, err)
}

func (p *play) queued(a *script.Arguments) string {
	send, recv := p.vis[a.Words[0]].Queued()
	return fmt.Sprintf("%s: %d and %d queued", a.Words[0], send, recv)
}

// poke has the NIC poll its device.
func (p *play) poke(a *script.Arguments) string {
	if did := p.n.Poll(); a.Flag("show") {
		return fmt.Sprintf("poll: %v", did)
	}
	return ""
}

// marks is: marks VI, the marks of doorbells in BAR2.
func (p *play) marks(a *script.Arguments) string {
	bar := p.d.bar2.Bytes()
	mark, group := datasheet.MarkOffsets(uint64(p.vis[a.Words[0]].Number()))
	all := 0
	for _, b := range bar[datasheet.MarkBase:][:datasheet.MarkCount] {
		all += int(b)
	}
	return fmt.Sprintf("marks: %d, its group %d, %d in all", bar[mark], bar[group], all)
}

// token is: token NUMBER QUEUE INDEX. It gives a number the name of a token of a shared receive queue.
func (p *play) token(a *script.Arguments) string {
	p.d.with(func() {
		b := p.d.admin.endpoints[p.vis[a.Words[1]].Number()]
		at := b.RecvIOVA + p.value(a.Words[2])&(1<<b.RecvLog2-1)*datasheet.TokenSize
		p.numbers[a.Words[0]] = uint64(datasheet.TokensAt(p.d.memory(at, datasheet.TokenSize))[0].Flags)
	})
	return ""
}

// put is: put RING send|recv INDEX [MESSAGE] [FIELD=VALUE...], [size=BYTES] of a message of zeroes.
func (p *play) put(a *script.Arguments) string {
	r, i := p.rings[a.Words[0]], uint32(p.value(a.Words[2]))
	if a.Words[1] == "recv" {
		var frame datasheet.DataSegment
		p.change(&frame, a.Changes)
		return outcome("put", r.Recv.Put(i, nil, driver.RingEntry{Payload: frame}))
	}
	var s driver.RingEntry
	message := make([]byte, p.option(a, "size", 0))
	if len(a.Words) > 3 {
		message = []byte(strings.Join(a.Words[3:], " "))
	}
	p.change(&s, a.Changes)
	return outcome("put", r.Send.Put(i, message, s))
}

// postRing is: post-ring RING send|recv COUNT.
func (p *play) postRing(a *script.Arguments) string {
	return outcome("post", p.ringQueue(a).Post(int(p.value(a.Words[2]))))
}

// ringQueue is the queue that RING send|recv names.
func (p *play) ringQueue(a *script.Arguments) *driver.RingQueue {
	r := p.rings[a.Words[0]]
	if a.Words[1] == "recv" {
		return &r.Recv
	}
	return &r.Send
}

// takeRing is: take-ring RING send|recv.
func (p *play) takeRing(a *script.Arguments) string {
	c, err := p.ringQueue(a).Done()
	out := fmt.Sprintf("%s %s: %+v", a.Words[0], a.Words[1], c)
	if err != nil {
		out += "; " + say(err)
	}
	return out
}

// waitRing is: wait-ring RING recv|any [early].
func (p *play) waitRing(a *script.Arguments) string {
	early := driver.NewSignal()
	if a.Flag("early") {
		early.Set()
	}
	f := p.rings[a.Words[0]].Recv.Wait
	if a.Words[1] == "any" {
		f = p.rings[a.Words[0]].Wait
	}
	return outcome("wait", f(p.context(a), early))
}

// place is: place RING TAG [FIELD=VALUE...], or place RING TAG clear.
func (p *play) place(a *script.Arguments) string {
	r, tag := p.rings[a.Words[0]], uint32(p.value(a.Words[1]))
	if a.Flag("clear") {
		return outcome("place", r.SetPlace(tag, datasheet.DataSegment{}))
	}
	var at datasheet.DataSegment
	p.change(&at, a.Changes)
	return outcome("place", r.SetPlace(tag, at))
}

// same says whether two VIs have the same number.
func (p *play) same(a *script.Arguments) string {
	return fmt.Sprintf("the same number: %v", p.vis[a.Words[0]].Number() == p.vis[a.Words[1]].Number())
}

// mapped is: mapped RING.
func (p *play) mapped(a *script.Arguments) string {
	r := p.rings[a.Words[0]]
	return fmt.Sprintf("%s: message of %d bytes", a.Words[0], len(r.Send.Message(0)))
}
