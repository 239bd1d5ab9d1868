package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// storm is a random history of one connection after another between two VIs on
// a wire that gets better and worse. What must hold whatever happens: every
// posted descriptor completes exactly once, in order, at the latest when its
// connection has ended; what was delivered is the beginning of what was sent;
// and both ends notice that a connection is gone.
//
// Two thirds of the storms have a wire that hands frames over in pieces, some of
// which break off, a third hosts that meddle with how payloads move, and a quarter
// a wire on which payloads are lent. The host uses a buffer for something else as
// soon as it is its own again.
type storm struct {
	t    *testing.T
	w    *world
	r    *rand.Rand
	loss float64 // of the wire, as of now
	cut  float64 // of the frames: those that break off, at each look
	ends [2]*stormEnd

	meddlers []*meddler
}

// stormEnd is one VI, with both queues on one completion queue.
type stormEnd struct {
	*vi
	cq         *cq
	sent, recv history
}

// history is what was posted to a queue, and with what status it came back.
type history struct {
	posted []*stormMessage
	done   uint32 // entries taken
	since  uint32 // number of the first that belongs to the connection
}

type stormMessage struct {
	d      *descriptors.Descriptor
	bufs   [][]byte
	data   []byte // that is sent
	status datasheet.Status
	bad    bool // cannot succeed
}

// wrappingKeys gives keys just below 2^32: sequence numbers, which start there,
// wrap soon after a connection's beginning.
type wrappingKeys struct{ next uint32 }

func (k *wrappingKeys) Read(p []byte) (int, error) {
	k.next -= 3
	return binary.Encode(p, binary.LittleEndian, k.next)
}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{t: t, r: rand.New(rand.NewPCG(seed, 7))}
	options := []option{memory(8 << 20), func(c *engine.Config, _ *port) {
		if seed%2 == 0 {
			c.Rand = &wrappingKeys{next: 0xffffffff - uint32(seed)%32}
		}
	}}
	if seed%3 != 0 {
		options = append(options, inParts(randomly(s.r, &s.cut)), bursts(64+s.r.IntN(1000)))
	}
	if seed%4 == 3 {
		options = append(options, lending(4096, new([2]*lender)))
	}
	s.w = newWorld(t, options...)
	for i, n := range []*node{s.w.a, s.w.b} {
		var late []byte
		n.port.spoil = func(f []byte) [][]byte { return s.spoil(f, &late) }
		if s.r.IntN(4) == 0 {
			n.port.room = 1 + s.r.IntN(20)
		}
		s.ends[i] = s.newEnd(n)
		if seed%3 == 2 {
			s.meddlers = append(s.meddlers, newMeddler(n, s.r))
		}
	}
	return s
}

// spoil loses, doubles and delays frames. late is the one that is delayed.
func (s *storm) spoil(f []byte, late *[]byte) [][]byte {
	if s.r.Float64() < s.loss {
		return nil
	}
	if s.loss == 0 || s.r.IntN(5) > 0 {
		return [][]byte{f}
	}
	other := *late
	*late = append(alignedBytes(0), f...)
	if other == nil {
		return [][]byte{f} // once now, and once more later
	}
	return [][]byte{f, other}
}

func (s *storm) newEnd(n *node) *stormEnd {
	e := &stormEnd{cq: n.newCQ(12, datasheet.NoVector)}
	e.vi = n.newVI(n.memory(0, 0), func(b *datasheet.CreateEndpointBody) {
		b.SendCQ, b.RecvCQ = e.cq.id, e.cq.id
	})
	return e
}

// step does something small, or lets a little time pass.
func (s *storm) step() {
	s.w.a.e.Step()
	s.w.b.e.Step()
	for _, m := range s.meddlers {
		m.step()
	}
	switch k := s.r.IntN(300); {
	case k == 0:
		s.w.now += 20 * time.Second // the host was suspended
	case k < 100:
		s.w.now += time.Duration(s.r.IntN(4000)) * time.Microsecond
	}
}

// message makes a descriptor of random size and segments.
func (s *storm) message(e *stormEnd, size int) *stormMessage {
	var sizes []int
	for n := s.r.IntN(4); n > 0; n-- {
		part := s.r.IntN(size + 1)
		sizes = append(sizes, part)
		size -= part
	}
	m := &stormMessage{}
	m.d, m.bufs = e.descriptor(append(sizes, size)...)
	return m
}

func (m *stormMessage) bytes() []byte { return bytes.Join(m.bufs, nil) }

const stormMax = 9000

func (s *storm) postSend(e *stormEnd) {
	if len(e.sent.posted)-int(e.sent.done) >= 1<<queueLog2 {
		return
	}
	m := s.message(e, []int{0, 1, 64, 1984, 1985, s.r.IntN(stormMax)}[s.r.IntN(6)])
	for _, b := range m.bufs {
		copy(b, pattern(len(b), s.r.Uint64()))
	}
	m.data = m.bytes()
	if s.r.IntN(40) == 0 {
		m.bad = true
		m.d.Control().Length++
	}
	e.sent.posted = append(e.sent.posted, m)
	e.postSend(m.d)
}

func (s *storm) postRecv(e *stormEnd) {
	if len(e.recv.posted)-int(e.recv.done) >= 1<<queueLog2 {
		return
	}
	m := s.message(e, stormMax)
	if s.r.IntN(60) == 0 {
		m.bad = true
		m.d.Control().Front = 1
	}
	e.recv.posted = append(e.recv.posted, m)
	e.postRecv(m.d)
}

// take takes what has completed and checks that it is in order.
func (s *storm) take(e *stormEnd) {
	s.t.Helper()
	for c, ok := e.cq.next(); ok; c, ok = e.cq.next() {
		h := &e.sent
		if c.Flags&datasheet.CompletionReceive != 0 {
			h = &e.recv
		}
		if c.Endpoint != e.id || c.Index != h.done || int(c.Index) >= len(h.posted) {
			s.t.Fatalf("completion %+v, expected number %d of %d", c, h.done, len(h.posted))
		}
		m := h.posted[h.done]
		m.status = m.d.Status()
		if uint32(m.status) != c.Status || !m.status.Done() {
			s.t.Fatalf("completion %+v, but the descriptor says %v", c, m.status)
		}
		if m.bad && !m.status.Failed() {
			s.t.Fatalf("bad descriptor %d succeeded", h.done)
		}
		if h == &e.sent {
			for _, b := range m.bufs {
				clear(b)
			}
		}
		h.done++
	}
}

// check compares what one end sent on the connection with what the other got.
func (s *storm) check(from, to *stormEnd) {
	s.t.Helper()
	good := func(h *history) (ms []*stormMessage) {
		for _, m := range h.posted[h.since:h.done] {
			if m.status.Failed() {
				return ms
			}
			ms = append(ms, m)
		}
		return ms
	}
	got, sent := good(&to.recv), from.sent.posted[from.sent.since:]
	if n := len(good(&from.sent)); n > len(got) {
		s.t.Fatalf("%d sends succeeded, but %d messages arrived", n, len(got))
	}
	for i, m := range got {
		want := sent[i].data
		if sent[i].bad || int(m.d.Length()) != len(want) || !bytes.Equal(m.bytes()[:len(want)], want) {
			s.t.Fatalf("message %d of the connection: %d bytes arrived, %d were sent", i, m.d.Length(), len(want))
		}
	}
	for _, h := range []*history{&from.sent, &from.recv} {
		failed := false
		for _, m := range h.posted[h.since:h.done] {
			if failed && !m.status.Failed() {
				s.t.Fatal("a descriptor behind one that failed succeeded")
			}
			failed = failed || m.status.Failed()
		}
	}
}

// connection lives one connection from its set-up to its end.
func (s *storm) connection() {
	a, b := s.ends[0], s.ends[1]
	s.loss = []float64{0, 0, 0.2}[s.r.IntN(3)]
	for range s.r.IntN(20) {
		s.postRecv(s.ends[s.r.IntN(2)])
	}
	for _, e := range s.ends {
		e.sent.since, e.recv.since = uint32(len(e.sent.posted)), e.recv.done
	}
	if s.r.IntN(2) == 0 {
		a, b = b, a
	}
	connect(a.vi, b.vi)
	for range 50 + s.r.IntN(400) {
		e := s.ends[s.r.IntN(2)]
		switch k := s.r.IntN(100); {
		case k < 25:
			s.postSend(e)
		case k < 50:
			s.postRecv(e)
		case k < 52:
			s.loss = []float64{0, 0, 0.1, 0.3, 0.6, 1}[s.r.IntN(6)]
			s.cut = s.loss / 5
		default:
			s.step()
		}
		s.take(e)
	}
	s.end()
	for _, e := range s.ends {
		s.take(e)
		if int(e.sent.done) != len(e.sent.posted) || int(e.recv.done) != len(e.recv.posted) {
			s.t.Fatalf("%d of %d sends and %d of %d receives completed",
				e.sent.done, len(e.sent.posted), e.recv.done, len(e.recv.posted))
		}
	}
	s.check(a, b)
	s.check(b, a)
}

// end ends the connection in one of the ways in which one can, and waits until
// both ends are idle.
func (s *storm) end() {
	first, second := s.ends[0], s.ends[1]
	if s.r.IntN(2) == 0 {
		first, second = second, first
	}
	how := s.r.IntN(3)
	s.loss = []float64{0, 0, 0.3, 0.6}[s.r.IntN(4)]
	if how == 0 { // both leave at once
		do(first.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: first.id})
		do(second.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: second.id})
		return
	}
	lost := s.loss
	if how == 1 {
		s.loss = 1 // nobody hears of it
	}
	do(first.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: first.id})
	s.loss = lost
	s.w.run("the other end's notice", func() bool { return second.vi.state() == datasheet.StateError })
	do(second.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: second.id})
}

// reset resets one of the NICs in the middle of a connection and makes its
// objects again. The other end must notice by itself.
func (s *storm) reset() {
	a, b := s.ends[0], s.ends[1]
	s.loss, s.cut = 0, 0
	connect(a.vi, b.vi)
	for range s.r.IntN(100) {
		e := s.ends[s.r.IntN(2)]
		s.postSend(e)
		s.postRecv(s.ends[s.r.IntN(2)])
		s.step()
		s.take(e)
	}
	gone := s.r.IntN(2)
	left := s.ends[1-gone]
	s.ends[gone].n.e.Reset()
	if s.meddlers != nil {
		s.meddlers[gone].forget()
	}
	s.w.run("the notice of a reset", func() bool { return left.vi.state() == datasheet.StateError })
	do(left.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: left.id})
	s.take(left)
	if int(left.sent.done) != len(left.sent.posted) || int(left.recv.done) != len(left.recv.posted) {
		s.t.Fatal("descriptors were lost")
	}
	s.ends[gone] = s.newEnd(s.ends[gone].n)
}

func TestStorm(t *testing.T) {
	for seed := range uint64(soak.Count(24, 48)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStorm(t, seed)
			for range 6 {
				s.connection()
				if s.r.IntN(3) == 0 {
					s.reset()
				}
			}
		})
	}
}
