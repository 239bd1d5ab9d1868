//go:build nffgo

package nffgo

import (
	"errors"
	"time"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// SetSender adds a sink to the graph and closes a flow: its packets go out of the queue. It
// takes no core if the functions before it are vector functions, and else one. It fails
// with ethernet.ErrInUse if the queue is a sink already, and with nff-go's errors.
func (q *Queue) SetSender(in *flow.Flow) error {
	if q.sending.Swap(true) {
		return q.inUse("send to")
	}
	if err := flow.SetVectorHandler(in, send, &sender{q: q}); err != nil {
		return err
	}
	return flow.SetStopper(in)
}

// sender is the state of one copy of the sink.
type sender struct {
	q       *Queue
	cache   *ethernet.Cache
	packets [burst]*packet.Packet
	frames  [burst]ethernet.Frame
	// end limits the wait, from the time on when nothing more was sent.
	end time.Time
}

func (s *sender) Copy() any { return &sender{q: s.q, cache: s.q.pool.NewCache()} }

func (s *sender) Delete() { s.cache.Close() }

// send sends packets and leaves them to be freed.
func send(packets []*packet.Packet, mask *[burst]bool, context flow.UserContext) {
	s := context.(*sender)
	wanted := 0
	for i, p := range packets {
		if mask[i] {
			s.packets[wanted] = p
			wanted++
		}
	}
	s.end = time.Time{}
	for rest := s.packets[:wanted]; len(rest) > 0; {
		n := s.alloc(len(rest))
		if n == 0 || !s.sendSome(rest[:n]) {
			s.q.counts.unsent.Add(uint64(len(rest) - n))
			return
		}
		rest = rest[n:]
	}
}

// sendSome sends as many packets as buffers were taken. ok is false if the port does not
// take more.
func (s *sender) sendSome(packets []*packet.Packet) (ok bool) {
	n := 0
	for _, p := range packets {
		if s.copy(p, &s.frames[n]) {
			n++
		} else {
			s.q.counts.bad.Add(1)
		}
	}
	left := s.put(s.frames[:n])
	s.q.counts.unsent.Add(uint64(left))
	s.cache.Free(s.frames[n-left : len(packets)])
	return left == 0
}

// late waits a little, and reports whether nothing has been sent for too long.
func (s *sender) late(p *pause) bool {
	if s.end.IsZero() {
		s.end = time.Now().Add(s.q.timeout)
	}
	p.wait()
	return time.Now().After(s.end)
}

// alloc takes at most n buffers. If the pool has none it waits until some have been sent. It
// returns how many there are.
func (s *sender) alloc(n int) int {
	for p := (pause{}); ; {
		if got := s.cache.Alloc(s.frames[:n]); got > 0 {
			return got
		}
		s.q.lock.Lock()
		_, err := s.q.queue.Unsent() // takes back the buffers of frames that were sent
		s.q.lock.Unlock()
		if err != nil {
			s.q.fail(err)
			return 0
		}
		if s.late(&p) {
			return 0
		}
	}
}

// copy makes a frame of a packet, and reports whether it can be one.
func (s *sender) copy(p *packet.Packet, f *ethernet.Frame) bool {
	b := p.GetRawPacketBytes()
	if uint(len(b)) != p.GetPacketLen() || len(b) > s.q.pool.Options().Size {
		return false
	}
	f.Length = uint16(len(b))
	copy(s.q.pool.Bytes(*f), b)
	return true
}

// put sends frames, in order, as the port takes them, and returns how many it did not
// take: they are the last ones.
func (s *sender) put(frames []ethernet.Frame) int {
	for p := (pause{}); len(frames) > 0; {
		s.q.lock.Lock()
		n, err := s.q.queue.Send(frames)
		s.q.lock.Unlock()
		s.q.counts.sent.Add(uint64(n))
		frames = frames[n:]
		switch {
		case errors.Is(err, ethernet.ErrBadFrame): // it is the first of those that are left
			s.q.counts.bad.Add(1)
			s.cache.Free(frames[:1])
			frames = frames[1:]
		case err != nil:
			s.q.fail(err)
			return len(frames)
		case n > 0:
			s.end = time.Time{}
		case s.late(&p):
			return len(frames)
		}
	}
	return 0
}
