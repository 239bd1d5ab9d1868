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
	w = newWorld(t, append([]option{memory(roomy)}, options...)...)
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
