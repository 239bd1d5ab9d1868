package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
)

var _ = also(map[string]func(p *play, a *arguments) string{
	"vi": (*play).vi, "pair": (*play).pair, "connect": (*play).connect, "disconnect": (*play).disconnect, "destroy": (*play).destroy,
	"deregister": (*play).deregister, "message": (*play).message,
	"send": (*play).send, "recv": (*play).recv,
	"write": func(p *play, a *arguments) string { return p.rdma(a, false) }, "read": func(p *play, a *arguments) string { return p.rdma(a, true) },
	"inline": (*play).inline,
	"set":    (*play).setItem, "post": (*play).post, "rearm": (*play).rearm, "show": (*play).showItems, "target": (*play).target,
	"landed": (*play).landed, "doorbell": (*play).doorbell, "cq": (*play).cq, "take": (*play).take, "arm": (*play).arm,
	"refuse": (*play).refuse,
})

// fillByte stands in receive buffers before anything arrives.
const fillByte = 0xee

// item is a descriptor that a script has made.
type item struct {
	name  string
	v     *vi
	d     *descriptors.Descriptor
	slot  *datasheet.RingSlot // of a ring, in place of d
	bufs  [][]byte
	data  []byte // of a send
	recv  bool
	op    datasheet.Status // that its status should have
	token datasheet.Token  // zero fields are the descriptor's
	in    *play
	shown string
}

func (p *play) endpoint(name string) *vi {
	p.t.Helper()
	v := p.ends[name]
	if v == nil {
		p.t.Fatalf("there is no endpoint %q", name)
	}
	return v
}

// default memory of a node, all of it.
func (p *play) handle(n *node) uint32 {
	name := p.nameOf(n) + ".mem"
	if p.numbers[name] == 0 {
		p.numbers[name] = uint64(n.memory(0, 0))
	}
	return uint32(p.numbers[name])
}

// vi is: vi NAME on NODE [FIELD=VALUE...].
func (p *play) vi(a *arguments) string {
	p.t.Helper()
	n := p.node(a.Words[2])
	handle := uint32(a.number("handle", uint64(p.handle(n))))
	v := n.newVI(handle, func(b *datasheet.CreateEndpointBody) { p.change(b, a.Changes...) })
	p.addEnd(a.Words[0], v)
	return ""
}

func (p *play) addEnd(name string, v *vi) {
	p.ends[name], p.numbers[name] = v, uint64(v.id)
}

// pair is: pair [FIELD=VALUE...]. It connects a VI v of node a with a VI p of node b.
func (p *play) pair(a *arguments) string {
	for name, on := range map[string]string{"v": "a", "p": "b"} {
		p.vi(&arguments{p: p, Arguments: &script.Arguments{Words: []string{name, "on", on}, Changes: a.Changes}})
	}
	connect(p.ends["v"], p.ends["p"])
	return ""
}

func (p *play) connect(a *arguments) string {
	connect(p.endpoint(a.Words[0]), p.endpoint(a.Words[1]))
	return ""
}

func (p *play) disconnect(a *arguments) string {
	v := p.endpoint(a.Words[0])
	if a.Flag("only") { // the reply needs no step of the peer
		start(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
		return ""
	}
	disconnect(v)
	return ""
}

func (p *play) destroy(a *arguments) string {
	v := p.endpoint(a.Words[0])
	do(v.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	delete(p.ends, a.Words[0])
	return ""
}

func (p *play) deregister(a *arguments) string {
	deregister(p.node(a.Words[0]), uint32(p.value(a.Words[1])))
	return ""
}

// message is: message FROM TO SIZE [MORE...]. Each is sent alone, and its buffers are used again.
func (p *play) message(a *arguments) (lines string) {
	p.t.Helper()
	v, w := p.endpoint(a.Words[0]), p.endpoint(a.Words[1])
	var arrived []string
	for _, size := range a.Words[2:] {
		what := fmt.Sprintf("%s to %s, %s bytes", a.Words[0], a.Words[1], size)
		if line := p.exchange(what, v, w, int(p.value(size))); line == what+": arrived" {
			arrived = append(arrived, size)
		} else {
			lines += line + "\n"
		}
	}
	if len(arrived) > 0 {
		lines += fmt.Sprintf("%s to %s, %s bytes: arrived", a.Words[0], a.Words[1], strings.Join(arrived, " "))
	}
	return lines
}

func (p *play) exchange(what string, v, w *vi, size int) string {
	here, there := v.n.brk, w.n.brk
	data := pattern(size, uint64(size)+7)
	sent, received, got := message(v, w, data)
	v.n.brk, w.n.brk = here, there
	if sent == datasheet.StatusDone && received == datasheet.StatusDone|datasheet.StatusOpReceive && bytes.Equal(got, data) {
		return what + ": arrived"
	}
	return fmt.Sprintf("%s: sent %v, received %v, the same bytes: %v", what, sent, received, bytes.Equal(got, data))
}

func (p *play) sizes(words []string) (sizes []int) {
	for _, w := range words {
		for s := range strings.SplitSeq(w, ",") {
			sizes = append(sizes, int(p.value(s)))
		}
	}
	return sizes
}

func (p *play) add(i *item) *item {
	i.in = p
	if old := p.items[i.name]; old != nil {
		p.order = slices.DeleteFunc(p.order, func(o *item) bool { return o == old })
		p.past = append(p.past, old)
	}
	p.items[i.name] = i
	p.order = append(p.order, i)
	return i
}

// finish sets what options say and posts what has been made, unless it is held.
func (p *play) finish(a *arguments, held, fence bool, made []*item) string {
	if imm, ok := a.Option("imm"); ok {
		for _, i := range made {
			i.d.SetImmediate(uint32(p.value(imm)))
		}
	}
	if fence {
		for _, i := range made {
			i.d.SetFence()
		}
	}
	for _, i := range made {
		p.setOf(i, a.Changes)
	}
	if !held {
		p.postAll(made)
	}
	return ""
}

// send is: send VI NAMES SIZES [text=TEXT] [imm=N] [fence] [hold] [FIELD=VALUE...]. Names are posted by
// one doorbell. recv is the same.
func (p *play) send(a *arguments) string {
	p.t.Helper()
	held, fence := a.Flag("hold"), a.Flag("fence")
	text, _ := a.Option("text")
	v := p.endpoint(a.Words[0])
	sizes := p.sizes(a.Words[2:])
	if text != "" {
		sizes = []int{len(text)}
	}
	var made []*item
	for _, name := range script.Span(a.Words[1]) {
		i := p.add(&item{name: name, v: v})
		i.d, i.bufs = v.descriptor(sizes...)
		p.fill(i, text)
		made = append(made, i)
	}
	return p.finish(a, held, fence, made)
}

// seed is another number each time.
func (p *play) seed() uint64 {
	p.seeds++
	return p.seeds
}

// fill writes what an item sends.
func (p *play) fill(i *item, text string) {
	total := 0
	for _, b := range i.bufs {
		total += len(b)
	}
	if i.data = []byte(text); text == "" {
		i.data = pattern(total, p.seed())
	}
	rest := i.data
	for _, b := range i.bufs {
		rest = rest[copy(b, rest):]
	}
}

func (p *play) recv(a *arguments) string {
	p.t.Helper()
	held := a.Flag("hold")
	v := p.endpoint(a.Words[0])
	sizes := p.sizes(a.Words[2:])
	var made []*item
	for _, name := range script.Span(a.Words[1]) {
		i := p.add(&item{name: name, v: v, recv: true, op: datasheet.StatusOpReceive})
		i.d, i.bufs = v.descriptor(sizes...)
		for _, b := range i.bufs {
			for n := range b {
				b[n] = fillByte
			}
		}
		made = append(made, i)
	}
	return p.finish(a, held, false, made)
}

// rdma is: write VI NAMES TARGET OFFSET SIZES, and read the same, with options as for send.
func (p *play) rdma(a *arguments, read bool) string {
	p.t.Helper()
	held, fence := a.Flag("hold"), a.Flag("fence")
	v, to, offset := p.endpoint(a.Words[0]), p.targets[a.Words[2]], int(p.value(a.Words[3]))
	sizes := p.sizes(a.Words[4:])
	var made []*item
	for _, name := range script.Span(a.Words[1]) {
		i := p.add(&item{name: name, v: v, recv: read, op: datasheet.StatusOpRDMAWrite})
		if read {
			i.op = datasheet.StatusOpRDMARead
			i.d, i.bufs = v.read(to, offset, sizes...)
			for _, b := range i.bufs {
				for n := range b {
					b[n] = fillByte
				}
			}
		} else {
			i.d = v.write(to, offset, nil, sizes...)
			for _, s := range i.d.Segments() {
				at := s.Address - hostBase
				i.bufs = append(i.bufs, v.n.mem[at:at+uint64(s.Length)])
			}
			p.fill(i, "")
		}
		made = append(made, i)
	}
	return p.finish(a, held, fence, made)
}

// inline is: inline VI NAME SIZE.
func (p *play) inline(a *arguments) string {
	p.t.Helper()
	v, size := p.endpoint(a.Words[0]), int(p.value(a.Words[2]))
	i := p.add(&item{name: a.Words[1], v: v})
	mem, address, _ := v.n.alloc(descriptors.DescriptorBytes(datasheet.MaxSegments))
	var err error
	if i.d, err = descriptors.NewDescriptor(mem, address, v.handle); err != nil {
		p.t.Fatal(err)
	}
	i.data = pattern(size, p.seed())
	copy(i.d.Inline(), i.data)
	must.OK(p.t, i.d.SetInline(size))
	return p.finish(a, false, false, []*item{i})
}

// all returns the items that words name.
func (p *play) all(words []string) (items []*item) {
	p.t.Helper()
	for _, w := range words {
		for _, name := range script.Span(w) {
			i := p.items[name]
			if i == nil {
				p.t.Fatalf("there is no descriptor %q", name)
			}
			items = append(items, i)
		}
	}
	return items
}

// setItem is: set NAMES FIELD=VALUE... Fields are those of the control segment or of a ring's slot, of
// segments as seg0.Length, and of the token as token.Handle.
func (p *play) setItem(a *arguments) string {
	for _, i := range p.all(a.Words) {
		p.setOf(i, a.Changes)
	}
	return ""
}

func (p *play) setOf(i *item, changes []script.Change) {
	p.t.Helper()
	for _, c := range changes {
		root, rest, _ := strings.Cut(c.Path, ".")
		switch segment, isSegment := strings.CutPrefix(root, "seg"); {
		case root == "token":
			if i.token == (datasheet.Token{}) {
				i.token = i.d.Token()
			}
			c.Path = rest
			p.change(&i.token, c)
		case isSegment:
			c.Path = rest
			p.change(&i.d.Segments()[int(p.value(segment))], c)
		case i.slot != nil:
			p.change(i.slot, c)
		default:
			p.change(i.d.Control(), c)
		}
	}
}

// post is: post NAMES. One doorbell of each queue tells of them.
func (p *play) post(a *arguments) string {
	p.postAll(p.all(a.Words))
	return ""
}

func (p *play) postAll(items []*item) {
	for len(items) > 0 {
		n := 1
		for n < len(items) && items[n].v == items[0].v && items[n].posts() == items[0].posts() {
			n++
		}
		v, kind := items[0].v, uint64(datasheet.DoorbellSend)
		q := &v.send
		if items[0].posts() {
			q, kind = &v.recv, datasheet.DoorbellRecv
		}
		for _, i := range items[:n] {
			at := q.producer % uint32(len(q.tokens))
			if q.tokens[at] = i.d.Token(); i.token != (datasheet.Token{}) {
				q.tokens[at] = i.token
			}
			q.posted = append(q.posted, i.d)
			q.producer++
		}
		v.ring(kind, q.producer)
		items = items[n:]
	}
}

// posts reports whether an item goes to the receive queue.
func (i *item) posts() bool { return i.recv && i.op == datasheet.StatusOpReceive }

func (p *play) rearm(a *arguments) string {
	for _, i := range p.all(a.Words) {
		i.d.Rearm()
		i.shown = ""
	}
	return ""
}

// showItems is: show NAMES.
func (p *play) showItems(a *arguments) string { return p.describe(p.all(a.Words)) }
