package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

// sharedQueue is a receive queue that VIs of a node share, and its completion queue.
type sharedQueue struct {
	*vi
	entries []descriptors.Completion
	index   []byte
	taken   uint32
	named   map[uint32]*descriptors.Descriptor // posted, and not completed
	cq      uint32
}

const sharedCQLog2 = 8

func (n *node) newSharedQueue(handle uint32, change func(*descriptors.CreateEndpointBody)) *sharedQueue {
	n.w.t.Helper()
	ring, _, iova := n.alloc(descriptors.CompletionSize << sharedCQLog2)
	index, _, indexIOVA := n.alloc(4)
	cq := descriptors.Reply[descriptors.CQBody](do(n, descriptors.OpCreateCQ, descriptors.CreateCQBody{
		IOVA: iova, IndexIOVA: indexIOVA, Vector: descriptors.NoVector, Log2: sharedCQLog2})).CQ
	v := n.newVI(handle, func(b *descriptors.CreateEndpointBody) {
		b.Kind, b.RecvCQ = descriptors.KindReceiveQueue, cq
		if change != nil {
			change(b)
		}
	})
	return &sharedQueue{vi: v, entries: descriptors.CompletionsAt(ring), index: index, named: map[uint32]*descriptors.Descriptor{}, cq: cq}
}

// shares makes a new VI take its receives from s.
func (s *sharedQueue) shares(b *descriptors.CreateEndpointBody) {
	b.Options |= descriptors.EndpointShares
	b.RecvIOVA, b.RecvCQ = uint64(s.id), descriptors.NoCQ
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
	s.n.e.Doorbell(descriptors.EndpointPage(s.id)+descriptors.DoorbellRecv, q.producer)
}

// done is what a completion entry says.
type done struct {
	endpoint, name uint32
	d              *descriptors.Descriptor
}

// next takes the next completion, if there is one.
func (s *sharedQueue) next() (done, bool) {
	e := &s.entries[s.taken%uint32(len(s.entries))]
	if e.LoadFlags()&descriptors.CompletionPhase != descriptors.PhaseOf(s.taken, sharedCQLog2) {
		return done{}, false
	}
	d := s.named[e.Index]
	if d == nil || e.LoadFlags()&descriptors.CompletionReceive == 0 || uint32(d.Status()) != e.Status {
		s.n.w.t.Fatalf("entry %d: endpoint %d, index %d, status %#x, flags %#x", s.taken, e.Endpoint, e.Index, e.Status, e.LoadFlags())
	}
	delete(s.named, e.Index)
	s.taken++
	descriptors.StoreIndex(descriptors.IndexAt(s.index), s.taken)
	return done{e.Endpoint, e.Index, d}, true
}

func (s *sharedQueue) take(what string) (c done) {
	s.n.w.t.Helper()
	s.n.w.run(what, func() (ok bool) { c, ok = s.next(); return ok })
	return c
}

// sharers is a world with count VIs at b that share a receive queue, each connected to one
// at a.
func sharers(t testing.TB, count int, change func(*descriptors.CreateEndpointBody), options ...option) (w *world, from, to []*vi, s *sharedQueue) {
	t.Helper()
	w = newWorld(t, options...)
	ha, hb := w.a.memory(0, 0), w.b.memory(0, 0)
	s = w.b.newSharedQueue(hb, nil)
	for range count {
		v := w.a.newVI(ha, change)
		p := w.b.newVI(hb, func(b *descriptors.CreateEndpointBody) {
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

func unreliableBody(b *descriptors.CreateEndpointBody) { b.Reliability = descriptors.Unreliable }

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
				if j < 0 || c.d.Status()&descriptors.StatusErrorMask != 0 || c.d.Length() != size {
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
				if d.Status()&descriptors.StatusErrorMask != 0 {
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
	if c := s.take("the message"); c.name != 7 || c.d.Status()&descriptors.StatusErrorMask != 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	w.run("the end of the send", func() bool { return d.Status().Done() })
	if d.Status()&descriptors.StatusErrorMask != 0 {
		t.Fatalf("the send ended with %v", d.Status())
	}
}

// TestSharedQueueEmptyBreaks: with EndpointBreaks such a message ends the connection, and that
// one only.
func TestSharedQueueEmptyBreaks(t *testing.T) {
	w, from, _, s := sharers(t, 2, func(b *descriptors.CreateEndpointBody) { b.Options = descriptors.EndpointBreaks })
	d, _ := from[0].descriptor(100)
	from[0].postSend(d)
	w.run("the end of the send", func() bool { return d.Status().Done() })
	if d.Status()&descriptors.StatusRemoteDescriptor == 0 {
		t.Fatalf("the send ended with %v", d.Status())
	}
	r, _ := s.descriptor(100)
	s.give(0, r)
	d, _ = from[1].descriptor(100)
	from[1].postSend(d)
	if c := s.take("a message of the other"); c.d.Status()&descriptors.StatusErrorMask != 0 {
		t.Fatal(c.d.Status())
	}
}

// TestSharedQueueUnreliable: an unreliable VI drops what finds no receive, and says so.
func TestSharedQueueUnreliable(t *testing.T) {
	w, from, to, s := sharers(t, 2, unreliableBody)
	d, _ := from[0].descriptor(100)
	from[0].postSend(d)
	w.settle()
	if !d.Status().Done() || len(w.b.events) != 1 || w.b.events[0].Code != descriptors.EventReceiveQueueEmpty || w.b.events[0].Endpoint != to[0].id {
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
			h := descriptors.HeaderAt(frame)
			if h.Type == descriptors.FrameData && h.Message == 0 && h.Offset > 0 {
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
	do(w.b, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: to[0].id})
	c := s.take("the flushed receive")
	if c.endpoint != to[0].id || c.name != 1000 || c.d.Status()&descriptors.StatusFlushed == 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	w.settle()
	if c, ok := s.next(); ok {
		t.Fatalf("%+v: %v, but nobody has taken it", c, c.d.Status())
	}
	// The queue stays as long as VIs share it.
	for _, op := range []descriptors.Opcode{descriptors.OpDestroyEndpoint, descriptors.OpDisconnect} {
		if r := w.b.wait(start(w.b, op, descriptors.EndpointBody{Endpoint: s.id})); r.Result != descriptors.ResultResource {
			t.Fatalf("%v of a queue in use: %v", op, r.Result)
		}
	}
	for _, v := range to {
		do(w.b, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: v.id})
		do(w.b, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: v.id})
	}
	if r := w.b.wait(start(w.b, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: s.id})); r.Result != descriptors.ResultResource {
		t.Fatalf("a queue with a descriptor was destroyed: %v", r.Result)
	}
	do(w.b, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: s.id})
	if c := s.take("the other receive"); c.endpoint != s.id || c.name != 2000 || c.d.Status()&descriptors.StatusFlushed == 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
	do(w.b, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: s.id})
}

// TestSharedQueueRefuses: what does not fit is refused with the field, and changes nothing.
func TestSharedQueueRefuses(t *testing.T) {
	w := newWorld(t)
	h := w.b.memory(0, 0)
	s := w.b.newSharedQueue(h, nil)
	plain := w.b.newVI(h, nil)
	tag := descriptors.Reply[descriptors.PtagBody](do(w.b, descriptors.OpCreatePtag, descriptors.PtagBody{})).Ptag
	good := descriptors.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: uint64(s.id), MaxTransfer: 4096,
		SendCQ: descriptors.NoCQ, RecvCQ: descriptors.NoCQ, SendVector: descriptors.NoVector, RecvVector: descriptors.NoVector,
		Kind: descriptors.KindVI, Options: descriptors.EndpointShares, Reliability: descriptors.ReliableDelivery,
		SendLog2: queueLog2, RecvLog2: queueLog2}
	for name, c := range map[string]struct {
		change func(*descriptors.CreateEndpointBody)
		why    descriptors.Result
	}{
		"no endpoint":      {func(b *descriptors.CreateEndpointBody) { b.RecvIOVA = 100 }, descriptors.ResultInvalidParameter},
		"a wrapped number": {func(b *descriptors.CreateEndpointBody) { b.RecvIOVA += 1 << 32 }, descriptors.ResultInvalidParameter},
		"a VI":             {func(b *descriptors.CreateEndpointBody) { b.RecvIOVA = uint64(plain.id) }, descriptors.ResultInvalidParameter},
		"another tag":      {func(b *descriptors.CreateEndpointBody) { b.Ptag = tag }, descriptors.ResultInvalidPtag},
		"a CQ of its own":  {func(b *descriptors.CreateEndpointBody) { b.RecvCQ = s.cq }, descriptors.ResultInvalidParameter},
		"a frame endpoint": {func(b *descriptors.CreateEndpointBody) {
			b.Kind, b.Reliability = descriptors.KindFrame, descriptors.Unreliable
		}, descriptors.ResultInvalidParameter},
		"queue of a queue": {func(b *descriptors.CreateEndpointBody) { b.Kind = descriptors.KindReceiveQueue }, descriptors.ResultInvalidParameter},
		"queue without CQ": {func(b *descriptors.CreateEndpointBody) {
			b.Kind, b.Options, b.RecvIOVA = descriptors.KindReceiveQueue, 0, busBase
		}, descriptors.ResultInvalidParameter},
		"queue that sends": {func(b *descriptors.CreateEndpointBody) {
			b.Kind, b.Options, b.RecvIOVA, b.SendCQ, b.RecvCQ = descriptors.KindReceiveQueue, 0, busBase, s.cq, s.cq
		}, descriptors.ResultInvalidParameter},
	} {
		b := good
		c.change(&b)
		if r := w.b.wait(start(w.b, descriptors.OpCreateEndpoint, b)); r.Result != c.why || r.Field == 0 {
			t.Errorf("%s: %v, field %d", name, r.Result, r.Field)
		}
	}
	id := descriptors.Reply[descriptors.EndpointCreated](do(w.b, descriptors.OpCreateEndpoint, good)).Endpoint
	for name, b := range map[string]descriptors.ModifyEndpointBody{
		"another tag": {Endpoint: id, Ptag: tag, MaxTransfer: 4096, Reliability: descriptors.ReliableDelivery, Options: descriptors.EndpointShares},
		"no queue":    {Endpoint: id, MaxTransfer: 4096, Reliability: descriptors.ReliableDelivery},
		"a queue":     {Endpoint: plain.id, MaxTransfer: 4096, Reliability: descriptors.ReliableDelivery, Options: descriptors.EndpointShares},
		"the queue":   {Endpoint: s.id, MaxTransfer: 4096, Reliability: descriptors.ReliableDelivery},
	} {
		if r := w.b.wait(start(w.b, descriptors.OpModifyEndpoint, b)); r.Result == descriptors.ResultSuccess {
			t.Errorf("modify, %s: it succeeded", name)
		}
	}
	do(w.b, descriptors.OpModifyEndpoint, descriptors.ModifyEndpointBody{Endpoint: id, MaxTransfer: 8192,
		Reliability: descriptors.Unreliable, Options: descriptors.EndpointShares})
	// A VI that shares has no doorbell for receives, and a queue connects to nobody.
	before := len(w.b.events)
	w.b.e.Doorbell(descriptors.EndpointPage(id)+descriptors.DoorbellRecv, 1)
	w.settle()
	q := descriptors.Reply[descriptors.EndpointReply](do(w.b, descriptors.OpQueryEndpoint, descriptors.EndpointBody{Endpoint: id}))
	if q.RecvProducer != 0 || len(w.b.events) != before {
		t.Errorf("%+v after a doorbell that is not there", q)
	}
	if r := w.b.wait(start(w.b, descriptors.OpConnectRequest, descriptors.ConnectRequestBody{Endpoint: s.id, TimeoutMS: 10,
		RemoteMAC: w.a.e.MAC(), Remote: disc("x")})); r.Result != descriptors.ResultInvalidState {
		t.Errorf("connecting a receive queue: %v", r.Result)
	}
	d, _ := s.descriptor(8)
	s.postSend(d)
	w.settle()
	if d.Status()&descriptors.StatusFlushed == 0 {
		t.Errorf("a send on a receive queue: %v", d.Status())
	}
}

// TestSharedQueueHoarded: a VI whose peer never sends the first of many messages takes as many
// receives as can be in work, and all come back when it ends.
func TestSharedQueueHoarded(t *testing.T) {
	const most = 64
	w, from, to, s := sharers(t, 2, nil, func(_ *engine.Config, p *port) {
		p.spoil = func(frame []byte) [][]byte {
			if h := descriptors.HeaderAt(frame); h.Type == descriptors.FrameData && h.Message == 0 && h.Length == 9 {
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
	q := descriptors.Reply[descriptors.EndpointReply](do(w.b, descriptors.OpQueryEndpoint, descriptors.EndpointBody{Endpoint: to[0].id}))
	if held := q.RecvProducer - q.RecvCompleted; held != most {
		t.Fatalf("the VI holds %d receives", held)
	}
	// The ring is full of what it holds: it ends before the other can go on.
	do(w.b, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: to[0].id})
	for i := range uint32(most) {
		c := s.take("a flushed receive")
		if c.endpoint != to[0].id || c.name != i || c.d.Status()&descriptors.StatusFlushed == 0 {
			t.Fatalf("receive %d: %+v, %v", i, c, c.d.Status())
		}
	}
	give()
	d, _ = from[1].descriptor(8)
	from[1].postSend(d)
	if c := s.take("a message of the other VI"); c.endpoint != to[1].id || c.d.Status()&descriptors.StatusErrorMask != 0 {
		t.Fatalf("%+v: %v", c, c.d.Status())
	}
}
