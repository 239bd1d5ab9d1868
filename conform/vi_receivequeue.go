package conform

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
func newSharing(w *World, count, depth, size int, a via.VIAttributes) *sharing {
	w.Helper()
	ctx := Context(w)
	s := &sharing{cq: Must(w.B.CreateCQ(ctx, 256))(w), size: size}
	s.queue = Must(w.B.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{Depth: depth}, s.cq))(w)
	s.memory = Must(w.B.Alloc(ctx, depth*size, via.MemoryAttributes{}))(w)
	shared := a
	shared.ReceiveQueue = s.queue
	for range count {
		x := NewEnd(w, w.A, Setup{Attributes: a})
		v := Must(w.B.CreateVI(ctx, shared, nil, nil))(w)
		OK(w, ConnectVIs(ctx, x.VI, v, w.Name()))
		s.from, s.to = append(s.from, x), append(s.to, v)
	}
	for i, d := range Must(s.queue.NewDescriptors(ctx, depth, 1))(w) {
		d.User().Word = uint64(i)
		s.post(w, d)
	}
	return s
}

func (s *sharing) post(t T, d *via.Descriptor) {
	t.Helper()
	d.Prepare()
	OK(t, s.memory.AddTo(d, int(d.User().Word)*s.size, s.size))
	OK(t, s.queue.PostRecv(d))
}

// received returns the bytes that d holds.
func (s *sharing) received(d *via.Descriptor) []byte {
	return s.memory.Bytes()[int(d.User().Word)*s.size:][:d.Length()]
}

func (s *sharing) take(w *World) (c via.Completion) {
	w.Helper()
	w.Until("a receive of the shared queue", func() bool {
		var err error
		if c, err = s.cq.Done(); err != nil && err != via.ErrNotDone {
			w.Fatal(err)
		}
		return err == nil
	})
	if c.Descriptor == nil || c.Queue != via.RecvQueue || c.User != c.Descriptor.User().Word {
		w.Fatalf("completion %+v", c)
	}
	return c
}

// testSharedReceives has several VIs send more than the shared queue holds: each message
// comes once, in order on its VI, with the VI's name.
func testSharedReceives(w *World) {
	const vis, depth, messages, window = 3, 4, 60, 8
	s := newSharing(w, vis, depth, 256, via.VIAttributes{SendDepth: window})
	posted, sent, got := [vis]int{}, [vis]int{}, [vis]int{}
	total := 0
	w.Until("all messages", func() bool {
		for i, x := range s.from {
			if posted[i] < messages && posted[i]-sent[i] < window {
				at := posted[i] % window
				b := x.Memory.Bytes()[at*8:]
				b[0], b[1] = byte(i), byte(posted[i])
				OK(w, x.VI.PostSend(x.Prepare(w, x.Send[at], at*8, 8)))
				posted[i]++
			}
			if _, err := x.VI.SendDone(); err == nil {
				sent[i]++
			} else if err != via.ErrNotDone && err != via.ErrQueueEmpty {
				w.Fatal(err)
			}
		}
		c, err := s.cq.Done()
		if err == via.ErrNotDone {
			return total == vis*messages && sent == [vis]int{messages, messages, messages}
		}
		OK(w, err)
		OK(w, c.Err)
		for i, v := range s.to {
			if c.VI != v {
				continue
			}
			if b := s.received(c.Descriptor); len(b) != 8 || b[0] != byte(i) || b[1] != byte(got[i]) {
				w.Fatalf("VI %d: message %v, want number %d", i, b, got[i])
			}
			got[i]++
			total++
		}
		s.post(w, c.Descriptor)
		return false
	})
	if got != [vis]int{messages, messages, messages} {
		w.Errorf("%v messages came", got)
	}
	if n := s.queue.Queued(); n != depth {
		w.Errorf("%d receives are posted, want %d", n, depth)
	}
}

// testSharedFailure ends one VI with an error; the queue and the other VIs go on. It asks
// for what is refused, too.
func testSharedFailure(w *World) {
	const depth = 4
	ctx := Context(w)
	s := newSharing(w, 2, depth, 64, via.VIAttributes{RDMAWrite: true})
	ds := Must(s.queue.NewDescriptors(ctx, 1, 1))(w)
	if err := s.queue.PostRecv(ds[0]); err != via.ErrQueueFull {
		w.Errorf("a post on a full queue: %v", err)
	}
	wantError(w, "a receive for a VI that shares", s.to[0].PostRecv(ds[0]), via.ErrInvalidState)
	_, err := s.to[0].RecvDone()
	wantError(w, "RecvDone of a VI that shares", err, via.ErrInvalidState)
	_, err = s.to[0].RecvWait(ctx)
	wantError(w, "RecvWait of a VI that shares", err, via.ErrInvalidState)
	wantError(w, "NotifyRecv of a VI that shares", s.to[0].NotifyRecv(func(*via.Descriptor, error) {}), via.ErrInvalidState)
	wantError(w, "a queue in use", s.queue.Close(ctx), via.ErrResource)
	tag := Must(w.B.CreatePtag(ctx))(w)
	_, err = w.B.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue, Ptag: tag}, nil, nil)
	wantError(w, "another ptag", err, via.ErrInvalidPtag)
	_, err = w.A.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue}, nil, nil)
	wantError(w, "a queue of another NIC", err, via.ErrInvalidParameter)
	_, err = w.B.CreateVI(ctx, via.VIAttributes{ReceiveQueue: s.queue}, nil, s.cq)
	wantError(w, "a CQ for receives that are shared", err, via.ErrInvalidParameter)
	_, err = w.B.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{}, nil)
	wantError(w, "a queue without a CQ", err, via.ErrInvalidParameter)
	OK(w, tag.Close(ctx))

	// A write with immediate data takes a receive too.
	x := s.from[1]
	target := Must(w.B.Alloc(ctx, 4096, via.MemoryAttributes{RDMAWrite: true}))(w)
	write := Must(x.VI.NewDescriptors(ctx, 1, 2))(w)[0]
	x.writeTo(w, write, 0, 8, target, 0).SetImmediate(77)
	OK(w, x.VI.PostSend(write))
	c := s.take(w)
	OK(w, c.Err)
	if value, ok := c.Descriptor.Immediate(); c.VI != s.to[1] || !ok || value != 77 {
		w.Errorf("an RDMA write: %+v, %d, %v", c, value, ok)
	}
	w.MustTake(x.VI.SendDone)
	s.post(w, c.Descriptor)

	// Too long for the receive: the VI is gone, its receive comes back with its name.
	x = s.from[0]
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 65)))
	c = s.take(w)
	if wantStatus(w, "a message that is too long", c.Descriptor, c.Err, via.StatusLengthError); c.VI != s.to[0] {
		w.Error("the receive of another VI came back")
	}
	s.post(w, c.Descriptor)
	_, err = w.Take(x.VI.SendDone)
	wantError(w, "its send", err, via.ErrDescriptor)
	wantState(w, s.to[0], via.ErrorState)
	for i := range 3 * depth {
		x := s.from[1]
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, i)))
		c := s.take(w)
		OK(w, c.Err)
		if c.VI != s.to[1] || c.Descriptor.Length() != uint32(i) {
			w.Fatalf("message %d: %+v of %d bytes", i, c, c.Descriptor.Length())
		}
		s.post(w, c.Descriptor)
		w.MustTake(x.VI.SendDone)
	}
	for _, v := range s.to {
		OK(w, v.Disconnect(ctx))
		OK(w, v.Close(ctx))
	}
	OK(w, s.queue.Close(ctx))
	wantError(w, "a queue that is gone", s.queue.PostRecv(ds[0]), via.ErrClosed)
	OK(w, s.cq.Close(ctx))
}
