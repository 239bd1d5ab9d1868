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
	OK(t, s.queue.PostRecv(describe(t, d, s.memory, int(d.User().Word)*s.size, s.size)))
}

// received returns the bytes that d holds.
func (s *sharing) received(d *via.Descriptor) []byte {
	return s.memory.Bytes()[int(d.User().Word)*s.size:][:d.Length()]
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
	wantEqual(w, got, [vis]int{messages, messages, messages}, "messages that came")
	wantEqual(w, s.queue.Queued(), depth, "receives that are posted")
}
