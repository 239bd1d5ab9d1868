package viatest

import (
	"github.com/trapeze-nic/trapeze/via"
)

// sharing are VIs of B that share a receive queue, each connected with one of A.
type sharing struct {
	from   []*End
	to     []*via.VI
	queue  *via.ReceiveQueue
	cq     *via.CQ
	memory *via.Memory
	size   int // bytes of a receive
}

// newSharing makes count of them, with depth receives of size bytes that are posted.
func newSharing(t T, p *Pair, count, depth, size int, a via.VIAttributes) *sharing {
	t.Helper()
	ctx := Context(t)
	s := &sharing{cq: Must(p.B.CreateCQ(ctx, 256))(t), size: size}
	s.queue = Must(p.B.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{Depth: depth}, s.cq))(t)
	s.memory = Must(p.B.Alloc(ctx, depth*size, via.MemoryAttributes{}))(t)
	shared := a
	shared.ReceiveQueue = s.queue
	for range count {
		x := NewEnd(t, p.A, Setup{Attributes: a})
		v := Must(p.B.CreateVI(ctx, shared, nil, nil))(t)
		OK(t, ConnectVIs(ctx, x.VI, v, t.Name()))
		s.from, s.to = append(s.from, x), append(s.to, v)
	}
	for i, d := range Must(s.queue.NewDescriptors(ctx, depth, 1))(t) {
		d.User().Word = uint64(i)
		s.post(t, d)
	}
	return s
}

func (s *sharing) post(t T, d *via.Descriptor) {
	t.Helper()
	d.Prepare()
	OK(t, s.memory.AddTo(d, int(d.User().Word)*s.size, s.size))
	OK(t, s.queue.PostRecv(d))
}

// received is what d holds.
func (s *sharing) received(d *via.Descriptor) []byte {
	return s.memory.Bytes()[int(d.User().Word)*s.size:][:d.Length()]
}

func (s *sharing) take(t T, p *Pair) (c via.Completion) {
	t.Helper()
	p.Until(t, "a receive of the shared queue", func() bool {
		var err error
		if c, err = s.cq.Done(); err != nil && err != via.ErrNotDone {
			t.Fatal(err)
		}
		return err == nil
	})
	if c.Descriptor == nil || c.Queue != via.RecvQueue || c.User != c.Descriptor.User().Word {
		t.Fatalf("completion %+v", c)
	}
	return c
}

// testSharedReceives has several VIs send more than the shared queue holds: each message
// comes once, in order on its VI, with the VI's name.
func testSharedReceives(t T, p *Pair) {
	const vis, depth, messages, window = 3, 4, 60, 8
	s := newSharing(t, p, vis, depth, 256, via.VIAttributes{SendDepth: window})
	posted, sent, got := [vis]int{}, [vis]int{}, [vis]int{}
	total := 0
	p.Until(t, "all messages", func() bool {
		for i, x := range s.from {
			if posted[i] < messages && posted[i]-sent[i] < window {
				at := posted[i] % window
				b := x.Memory.Bytes()[at*8:]
				b[0], b[1] = byte(i), byte(posted[i])
				OK(t, x.VI.PostSend(x.Prepare(t, x.Send[at], at*8, 8)))
				posted[i]++
			}
			if _, err := x.VI.SendDone(); err == nil {
				sent[i]++
			} else if err != via.ErrNotDone && err != via.ErrQueueEmpty {
				t.Fatal(err)
			}
		}
		c, err := s.cq.Done()
		if err == via.ErrNotDone {
			return total == vis*messages && sent == [vis]int{messages, messages, messages}
		}
		OK(t, err)
		OK(t, c.Err)
		for i, v := range s.to {
			if c.VI != v {
				continue
			}
			if b := s.received(c.Descriptor); len(b) != 8 || b[0] != byte(i) || b[1] != byte(got[i]) {
				t.Fatalf("VI %d: message %v, want number %d", i, b, got[i])
			}
			got[i]++
			total++
		}
		s.post(t, c.Descriptor)
		return false
	})
	if got != [vis]int{messages, messages, messages} {
		t.Errorf("%v messages came", got)
	}
	if n := s.queue.Queued(); n != depth {
		t.Errorf("%d receives are posted, want %d", n, depth)
	}
}

// testSharedFailure ends one VI with an error; the queue and the other VIs go on. It asks
// for what is refused, too.
func testSharedFailure(t T, p *Pair) {
	const depth = 4
	ctx := Context(t)
	s := newSharing(t, p, 2, depth, 64, via.VIAttributes{RDMAWrite: true})
	ds := Must(s.queue.NewDescriptors(ctx, 1, 1))(t)
	if err := s.queue.PostRecv(ds[0]); err != via.ErrQueueFull {
		t.Errorf("a post on a full queue: %v", err)
	}
	WantError(t, "a receive for a VI that shares", s.to[0].PostRecv(ds[0]), via.ErrInvalidState)
	_, err := s.to[0].RecvDone()
	WantError(t, "RecvDone of a VI that shares", err, via.ErrInvalidState)
	_, err = s.to[0].RecvWait(ctx)
	WantError(t, "RecvWait of a VI that shares", err, via.ErrInvalidState)
	WantError(t, "NotifyRecv of a VI that shares", s.to[0].NotifyRecv(func(*via.Descriptor, error) {}), via.ErrInvalidState)
	WantError(t, "a queue in use", s.queue.Destroy(ctx), via.ErrResource)
	tag := Must(p.B.CreatePtag(ctx))(t)
	_, err = p.B.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue, Ptag: tag}, nil, nil)
	WantError(t, "another ptag", err, via.ErrInvalidPtag)
	_, err = p.A.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue}, nil, nil)
	WantError(t, "a queue of another NIC", err, via.ErrInvalidParameter)
	_, err = p.B.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue}, nil, s.cq)
	WantError(t, "a CQ for receives that are shared", err, via.ErrInvalidParameter)
	_, err = p.B.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{}, nil)
	WantError(t, "a queue without a CQ", err, via.ErrInvalidParameter)
	OK(t, tag.Destroy(ctx))

	// A write with immediate data takes a receive too.
	x := s.from[1]
	target := Must(p.B.Alloc(ctx, 4096, via.MemoryAttributes{RDMAWrite: true}))(t)
	w := Must(x.VI.NewDescriptors(ctx, 1, 2))(t)[0]
	x.writeTo(t, w, 0, 8, target, 0).SetImmediate(77)
	OK(t, x.VI.PostSend(w))
	c := s.take(t, p)
	OK(t, c.Err)
	if value, ok := c.Descriptor.Immediate(); c.VI != s.to[1] || !ok || value != 77 {
		t.Errorf("an RDMA write: %+v, %d, %v", c, value, ok)
	}
	p.MustTake(t, x.VI.SendDone)
	s.post(t, c.Descriptor)

	// Too long for the receive: the VI is gone, its receive comes back with its name.
	x = s.from[0]
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 65)))
	c = s.take(t, p)
	if wantStatus(t, "a message that is too long", c.Descriptor, c.Err, via.StatusLengthError); c.VI != s.to[0] {
		t.Error("the receive of another VI came back")
	}
	s.post(t, c.Descriptor)
	_, err = p.Take(t, x.VI.SendDone)
	WantError(t, "its send", err, via.ErrDescriptor)
	wantState(t, s.to[0], via.ErrorState)
	for i := range 3 * depth {
		x := s.from[1]
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, i)))
		c := s.take(t, p)
		OK(t, c.Err)
		if c.VI != s.to[1] || c.Descriptor.Length() != uint32(i) {
			t.Fatalf("message %d: %+v of %d bytes", i, c, c.Descriptor.Length())
		}
		s.post(t, c.Descriptor)
		p.MustTake(t, x.VI.SendDone)
	}
	for _, v := range s.to {
		OK(t, v.Disconnect(ctx))
		OK(t, v.Destroy(ctx))
	}
	OK(t, s.queue.Destroy(ctx))
	WantError(t, "a queue that is gone", s.queue.PostRecv(ds[0]), via.ErrClosed)
	OK(t, s.cq.Destroy(ctx))
}
