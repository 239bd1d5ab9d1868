package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sharedQueue is a receive queue that VIs of a node share, and its completion queue.
type sharedQueue struct {
	*vi
	entries []datasheet.Completion
	index   []byte
	taken   uint32
	named   map[uint32]*descriptors.Descriptor // posted, and not completed
	cq      uint32
}

const sharedCQLog2 = 8

func (n *node) newSharedQueue(handle uint32, change func(*datasheet.CreateEndpointBody)) *sharedQueue {
	n.w.t.Helper()
	ring, _, iova := n.alloc(datasheet.CompletionSize << sharedCQLog2)
	index, _, indexIOVA := n.alloc(4)
	cq := datasheet.Reply[datasheet.CQBody](do(n, datasheet.OpCreateCQ, datasheet.CreateCQBody{
		IOVA: iova, IndexIOVA: indexIOVA, Vector: datasheet.NoVector, Log2: sharedCQLog2})).CQ
	v := n.newVI(handle, func(b *datasheet.CreateEndpointBody) {
		b.Kind, b.RecvCQ = datasheet.KindReceiveQueue, cq
		if change != nil {
			change(b)
		}
	})
	return &sharedQueue{vi: v, entries: datasheet.CompletionsAt(ring), index: index, named: map[uint32]*descriptors.Descriptor{}, cq: cq}
}

// shares makes a new VI take its receives from s.
func (s *sharedQueue) shares(b *datasheet.CreateEndpointBody) {
	b.Options |= datasheet.EndpointShares
	b.RecvIOVA, b.RecvCQ = uint64(s.id), datasheet.NoCQ
}

// give posts descriptors, with the names from first on.
func (s *sharedQueue) give(first uint32, ds ...*descriptors.Descriptor) {
	q := &s.recv
	for i, d := range ds {
		t := d.Token()
		t.Flags = first + uint32(i)
		q.tokens[q.producer%uint32(len(q.tokens))] = t
		q.producer++
		if s.named[t.Flags] != nil {
			s.n.w.t.Fatalf("%d is posted twice", t.Flags)
		}
		s.named[t.Flags] = d
	}
	s.n.e.Doorbell(datasheet.EndpointPage(s.id)+datasheet.DoorbellRecv, q.producer)
}

// done is what a completion entry says.
type done struct {
	endpoint, name uint32
	d              *descriptors.Descriptor
}

// next takes the next completion, if there is one.
func (s *sharedQueue) next() (done, bool) {
	e := &s.entries[s.taken%uint32(len(s.entries))]
	if e.LoadFlags()&datasheet.CompletionPhase != datasheet.PhaseOf(s.taken, sharedCQLog2) {
		return done{}, false
	}
	d := s.named[e.Index]
	if d == nil || e.LoadFlags()&datasheet.CompletionReceive == 0 || uint32(d.Status()) != e.Status {
		s.n.w.t.Fatalf("entry %d: endpoint %d, index %d, status %#x, flags %#x", s.taken, e.Endpoint, e.Index, e.Status, e.LoadFlags())
	}
	delete(s.named, e.Index)
	s.taken++
	datasheet.StoreIndex(datasheet.IndexAt(s.index), s.taken)
	return done{e.Endpoint, e.Index, d}, true
}

func (s *sharedQueue) take(what string) (c done) {
	s.n.w.t.Helper()
	s.n.w.run(what, func() (ok bool) { c, ok = s.next(); return ok })
	return c
}

// sharers is a world with count VIs at b that share a receive queue, each connected to one
// at a.
func sharers(t testing.TB, count int, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, from, to []*vi, s *sharedQueue) {
	t.Helper()
	w = newWorld(t, options...)
	ha, hb := w.a.memory(0, 0), w.b.memory(0, 0)
	s = w.b.newSharedQueue(hb, nil)
	for range count {
		v := w.a.newVI(ha, change)
		p := w.b.newVI(hb, func(b *datasheet.CreateEndpointBody) {
			if change != nil {
				change(b)
			}
			s.shares(b)
		})
		connect(v, p)
		from, to = append(from, v), append(to, p)
	}
	return w, from, to, s
}

func unreliableBody(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.Unreliable }

// TestSharedReceives: several VIs take their receives from one queue, each message one, and
// each VI's messages come in order, whatever the wire does, when receives are few and come late.
func TestSharedReceives(t *testing.T) {
	for _, loss := range []int{0, 20} {
		t.Run(fmt.Sprintf("%d%% lost", loss), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(loss), 15))
			w, from, to, s := sharers(t, 3, nil, func(_ *engine.Config, p *port) {
				p.spoil = func(frame []byte) [][]byte {
					if random.IntN(100) < loss {
						return nil
					}
					return [][]byte{frame}
				}
			})
			const each, size = 40, 5000
			sizes := map[uint32]int{}
			var sends []*descriptors.Descriptor
			for i := range each {
				for j, v := range from {
					d, out := v.descriptor(size)
					copy(out[0], pattern(size, uint64(i*3+j)))
					v.postSend(d)
					sends = append(sends, d)
				}
			}
			bufs := map[*descriptors.Descriptor][]byte{}
			name := uint32(0)
			for got := 0; got < each*len(from); got++ {
				if len(s.named) == 0 {
					w.settle() // messages find the queue empty
					for range 1 + random.IntN(6) {
						d, in := s.descriptor(size)
						bufs[d] = in[0]
						s.give(name, d)
						name++
					}
				}
				c := s.take("a message")
				j := -1
				for i, v := range to {
					if v.id == c.endpoint {
						j = i
					}
				}
				if j < 0 || c.d.Status()&datasheet.StatusErrorMask != 0 || c.d.Length() != size {
					t.Fatalf("endpoint %d: %v, %d bytes", c.endpoint, c.d.Status(), c.d.Length())
				}
				mustEqual(t, bufs[c.d], pattern(size, uint64(sizes[c.endpoint]*3+j)))
				sizes[c.endpoint]++
			}
			w.run("the end of all sends", func() bool {
				for _, d := range sends {
					if !d.Status().Done() {
						return false
					}
				}
				return true
			})
			for _, d := range sends {
				if d.Status()&datasheet.StatusErrorMask != 0 {
					t.Fatalf("a send ended with %v", d.Status())
				}
			}
		})
	}
}

// TestSharedQueueEmpty: a peer whose messages find no receive for longer than the dead time is
// not given up, and gets one in the end.
func TestSharedQueueEmpty(t *testing.T) {
	w, from, _, s := sharers(t, 1, nil)
	d, _ := from[0].descriptor(100)
	from[0].postSend(d)
	begin := w.now
	w.run("ten dead times", func() bool { return w.now-begin > 30e9 })
	if d.Status().Done() {
		t.Fatalf("the send ended with %v", d.Status())
	}
	r, _ := s.descriptor(100)
	s.give(7, r)
	if c := s.take("the message"); c.name != 7 || c.d.Status()&datasheet.StatusErrorMask != 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	w.run("the end of the send", func() bool { return d.Status().Done() })
	if d.Status()&datasheet.StatusErrorMask != 0 {
		t.Fatalf("the send ended with %v", d.Status())
	}
}

// TestSharedQueueEmptyBreaks: with EndpointBreaks such a message ends the connection, and that
// one only.
func TestSharedQueueEmptyBreaks(t *testing.T) {
	w, from, _, s := sharers(t, 2, func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointBreaks })
	d, _ := from[0].descriptor(100)
	from[0].postSend(d)
	w.run("the end of the send", func() bool { return d.Status().Done() })
	if d.Status()&datasheet.StatusRemoteDescriptor == 0 {
		t.Fatalf("the send ended with %v", d.Status())
	}
	r, _ := s.descriptor(100)
	s.give(0, r)
	d, _ = from[1].descriptor(100)
	from[1].postSend(d)
	if c := s.take("a message of the other"); c.d.Status()&datasheet.StatusErrorMask != 0 {
		t.Fatal(c.d.Status())
	}
}

// TestSharedQueueUnreliable: an unreliable VI drops what finds no receive, and says so.
func TestSharedQueueUnreliable(t *testing.T) {
	w, from, to, s := sharers(t, 2, unreliableBody)
	d, _ := from[0].descriptor(100)
	from[0].postSend(d)
	w.settle()
	if !d.Status().Done() || len(w.b.events) != 1 || w.b.events[0].Code != datasheet.EventReceiveQueueEmpty || w.b.events[0].Endpoint != to[0].id {
		t.Fatalf("%v, events %+v", d.Status(), w.b.events)
	}
	for i, v := range from {
		r, in := s.descriptor(100)
		s.give(uint32(i), r)
		d, out := v.descriptor(100)
		copy(out[0], pattern(100, uint64(i)))
		v.postSend(d)
		if c := s.take("a message"); c.endpoint != to[i].id || c.name != uint32(i) {
			t.Fatalf("%+v", c)
		}
		mustEqual(t, in[0], pattern(100, uint64(i)))
	}
}

// TestSharerEnds: a VI that ends while a message is in work gives back the receive it has
// taken, and no other; the receives are completed out of order, and the ring goes on.
func TestSharerEnds(t *testing.T) {
	w, from, to, s := sharers(t, 2, nil, func(c *engine.Config, p *port) {
		p.spoil = func(frame []byte) [][]byte {
			h := datasheet.HeaderAt(frame)
			if h.Type == datasheet.FrameData && h.Message == 0 && h.Offset > 0 {
				return nil // the first message of each VI stays incomplete
			}
			return [][]byte{frame}
		}
	})
	ring := len(s.recv.tokens)
	r, _ := s.descriptor(5000)
	s.give(1000, r)
	d, _ := from[0].descriptor(5000)
	from[0].postSend(d)
	w.settle()
	for i := range 3 * ring { // the first one's slot is used again
		r, _ := s.descriptor(64)
		s.give(uint32(i), r)
		d, _ := from[1].descriptor(64)
		from[1].postSend(d)
		if c := s.take("a message of the other VI"); c.endpoint != to[1].id || c.name != uint32(i) {
			t.Fatalf("message %d: %+v", i, c)
		}
	}
	rest, _ := s.descriptor(64)
	s.give(2000, rest)
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: to[0].id})
	c := s.take("the flushed receive")
	if c.endpoint != to[0].id || c.name != 1000 || c.d.Status()&datasheet.StatusFlushed == 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	w.settle()
	if c, ok := s.next(); ok {
		t.Fatalf("%+v: %v, but nobody has taken it", c, c.d.Status())
	}
	// The queue stays as long as VIs share it.
	for _, op := range []datasheet.Opcode{datasheet.OpDestroyEndpoint, datasheet.OpDisconnect} {
		if r := w.b.wait(start(w.b, op, datasheet.EndpointBody{Endpoint: s.id})); r.Result != datasheet.ResultResource {
			t.Fatalf("%v of a queue in use: %v", op, r.Result)
		}
	}
	for _, v := range to {
		do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
		do(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	}
	if r := w.b.wait(start(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: s.id})); r.Result != datasheet.ResultResource {
		t.Fatalf("a queue with a descriptor was destroyed: %v", r.Result)
	}
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: s.id})
	if c := s.take("the other receive"); c.endpoint != s.id || c.name != 2000 || c.d.Status()&datasheet.StatusFlushed == 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	do(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: s.id})
}

// TestSharedQueueRefuses: what does not fit is refused with the field, and changes nothing.
func TestSharedQueueRefuses(t *testing.T) {
	w := newWorld(t)
	h := w.b.memory(0, 0)
	s := w.b.newSharedQueue(h, nil)
	plain := w.b.newVI(h, nil)
	tag := datasheet.Reply[datasheet.PtagBody](do(w.b, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
	good := datasheet.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: uint64(s.id), MaxTransfer: 4096,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector,
		Kind: datasheet.KindVI, Options: datasheet.EndpointShares, Reliability: datasheet.ReliableDelivery,
		SendLog2: queueLog2, RecvLog2: queueLog2}
	for name, c := range map[string]struct {
		change func(*datasheet.CreateEndpointBody)
		why    datasheet.Result
	}{
		"no endpoint":      {func(b *datasheet.CreateEndpointBody) { b.RecvIOVA = 100 }, datasheet.ResultInvalidParameter},
		"a wrapped number": {func(b *datasheet.CreateEndpointBody) { b.RecvIOVA += 1 << 32 }, datasheet.ResultInvalidParameter},
		"a VI":             {func(b *datasheet.CreateEndpointBody) { b.RecvIOVA = uint64(plain.id) }, datasheet.ResultInvalidParameter},
		"another tag":      {func(b *datasheet.CreateEndpointBody) { b.Ptag = tag }, datasheet.ResultInvalidPtag},
		"a CQ of its own":  {func(b *datasheet.CreateEndpointBody) { b.RecvCQ = s.cq }, datasheet.ResultInvalidParameter},
		"a frame endpoint": {func(b *datasheet.CreateEndpointBody) {
			b.Kind, b.Reliability = datasheet.KindFrame, datasheet.Unreliable
		}, datasheet.ResultInvalidParameter},
		"queue of a queue": {func(b *datasheet.CreateEndpointBody) { b.Kind = datasheet.KindReceiveQueue }, datasheet.ResultInvalidParameter},
		"queue without CQ": {func(b *datasheet.CreateEndpointBody) {
			b.Kind, b.Options, b.RecvIOVA = datasheet.KindReceiveQueue, 0, busBase
		}, datasheet.ResultInvalidParameter},
		"queue that sends": {func(b *datasheet.CreateEndpointBody) {
			b.Kind, b.Options, b.RecvIOVA, b.SendCQ, b.RecvCQ = datasheet.KindReceiveQueue, 0, busBase, s.cq, s.cq
		}, datasheet.ResultInvalidParameter},
	} {
		b := good
		c.change(&b)
		if r := w.b.wait(start(w.b, datasheet.OpCreateEndpoint, b)); r.Result != c.why || r.Field == 0 {
			t.Errorf("%s: %v, field %d", name, r.Result, r.Field)
		}
	}
	id := datasheet.Reply[datasheet.EndpointCreated](do(w.b, datasheet.OpCreateEndpoint, good)).Endpoint
	for name, b := range map[string]datasheet.ModifyEndpointBody{
		"another tag": {Endpoint: id, Ptag: tag, MaxTransfer: 4096, Reliability: datasheet.ReliableDelivery, Options: datasheet.EndpointShares},
		"no queue":    {Endpoint: id, MaxTransfer: 4096, Reliability: datasheet.ReliableDelivery},
		"a queue":     {Endpoint: plain.id, MaxTransfer: 4096, Reliability: datasheet.ReliableDelivery, Options: datasheet.EndpointShares},
		"the queue":   {Endpoint: s.id, MaxTransfer: 4096, Reliability: datasheet.ReliableDelivery},
	} {
		if r := w.b.wait(start(w.b, datasheet.OpModifyEndpoint, b)); r.Result == datasheet.ResultSuccess {
			t.Errorf("modify, %s: it succeeded", name)
		}
	}
	do(w.b, datasheet.OpModifyEndpoint, datasheet.ModifyEndpointBody{Endpoint: id, MaxTransfer: 8192,
		Reliability: datasheet.Unreliable, Options: datasheet.EndpointShares})
	// A VI that shares has no doorbell for receives, and a queue connects to nobody.
	before := len(w.b.events)
	w.b.e.Doorbell(datasheet.EndpointPage(id)+datasheet.DoorbellRecv, 1)
	w.settle()
	q := datasheet.Reply[datasheet.EndpointReply](do(w.b, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: id}))
	if q.RecvProducer != 0 || len(w.b.events) != before {
		t.Errorf("%+v after a doorbell that is not there", q)
	}
	if r := w.b.wait(start(w.b, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: s.id, TimeoutMS: 10,
		RemoteMAC: w.a.e.MAC(), Remote: disc("x")})); r.Result != datasheet.ResultInvalidState {
		t.Errorf("connecting a receive queue: %v", r.Result)
	}
	d, _ := s.descriptor(8)
	s.postSend(d)
	w.settle()
	if d.Status()&datasheet.StatusFlushed == 0 {
		t.Errorf("a send on a receive queue: %v", d.Status())
	}
}

// TestSharedQueueHoarded: a VI whose peer never sends the first of many messages takes as many
// receives as can be in work, and all come back when it ends.
func TestSharedQueueHoarded(t *testing.T) {
	const most = 64
	w, from, to, s := sharers(t, 2, nil, func(_ *engine.Config, p *port) {
		p.spoil = func(frame []byte) [][]byte {
			if h := datasheet.HeaderAt(frame); h.Type == datasheet.FrameData && h.Message == 0 && h.Length == 9 {
				return nil
			}
			return [][]byte{frame}
		}
	})
	d, _ := from[0].descriptor(9)
	from[0].postSend(d)
	for range most - 1 {
		d, _ := from[0].descriptor(8)
		from[0].postSend(d)
	}
	name := uint32(0)
	give := func() {
		r, _ := s.descriptor(64)
		s.give(name, r)
		name++
	}
	for range len(s.recv.tokens) {
		give()
	}
	w.settle()
	q := datasheet.Reply[datasheet.EndpointReply](do(w.b, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: to[0].id}))
	if held := q.RecvProducer - q.RecvCompleted; held != most {
		t.Fatalf("the VI holds %d receives", held)
	}
	// The ring is full of what it holds: it ends before the other can go on.
	do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: to[0].id})
	for i := range uint32(most) {
		c := s.take("a flushed receive")
		if c.endpoint != to[0].id || c.name != i || c.d.Status()&datasheet.StatusFlushed == 0 {
			t.Fatalf("receive %d: %+v, %v", i, c, c.d.Status())
		}
	}
	give()
	d, _ = from[1].descriptor(8)
	from[1].postSend(d)
	if c := s.take("a message of the other VI"); c.endpoint != to[1].id || c.d.Status()&datasheet.StatusErrorMask != 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
}
