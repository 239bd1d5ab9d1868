package ring

import (
	"context"
	"errors"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Serve takes requests from a ring whose other end has a Caller. It calls handler with each,
// one at a time, until ctx ends, the connection ends, or the peer breaks the protocol. The ring
// must have no other use meanwhile.
//
// Serve returns nil if the peer has disconnected in order. Otherwise it returns the context's
// error, net.ErrClosed if this end was closed, ErrPeerGone, or via.ErrProtocol.
//
// Each request must be answered with Reply, by the handler or later. It keeps its entry of the
// receive ring until then, and so holds up the ring once all others are in use.
func Serve(ctx context.Context, r *Ring, handler func(*Request)) error {
	const op = "serve"
	if r == nil || handler == nil || ctx == nil {
		return &via.Error{Op: op, Code: via.ErrInvalidParameter, Hint: "context, ring and handler must not be nil"}
	}
	s := &server{r: r, requests: make([]Request, r.Entries()), more: driver.NewSignal()}
	for i := range s.requests {
		q := &s.requests[i]
		q.s, q.finished = s, q.finish
	}
	defer s.end()
	if err := s.run(ctx, handler); !errors.Is(err, via.ErrDisconnected) {
		return err
	}
	return nil
}

// run does the work of Serve. It returns an error at every end.
func (s *server) run(ctx context.Context, handler func(*Request)) error {
	r := s.r
	for taken := 0; ; taken++ {
		// The client waits for the answer, but not for this: it is done when the ring is
		// idle, or after every few requests.
		e, err := r.GetRecv()
		if err == via.ErrNotDone || taken%unchecked == 0 {
			r.reap(len(r.send.entries))
			s.flush()
		}
		switch {
		case err == via.ErrNotDone:
			if err := ctx.Err(); err != nil {
				return driver.NewError("serve", r.nic.Address(), err)
			}
			if err := r.waited(r.d.Wait(ctx, s.more)); err != nil {
				return err
			}
		case e == nil:
			return err
		case err != nil: // the entry's frame is closed
			if err := r.ReleaseRecv(e); err != nil {
				return err
			}
		default:
			if err := s.take(e, handler); err != nil {
				return errors.Join(err, r.ReleaseRecv(e))
			}
		}
	}
}

// unchecked is the number of requests that Serve takes before it looks after its replies.
const unchecked = 8

// server is one run of Serve.
type server struct {
	r        *Ring
	requests []Request // by entry of the receive ring
	more     *driver.Signal

	mu          sync.Mutex
	first, last *Request // replies that wait for room on the ring
	ended       bool
}

// take hands the request in e to the handler.
func (s *server) take(e *Entry, handler func(*Request)) error {
	q := &s.requests[e.index&s.r.recv.mask]
	copy(q.message[:], e.message)
	h, err := parseHeader(q.message[:], request)
	if err != nil {
		return driver.NewError("serve", s.r.nic.Address(), err)
	}
	q.e, q.tag, q.room = e, h.tag, h.payload
	q.Bytes = q.message[headerSize:][:h.size]
	q.Discarded = int(e.came.Sent) - e.length
	if q.Payload = e.frame; q.Payload.Length >= e.length {
		q.Payload.Length = e.length
	}
	q.state.Store(asked)
	handler(q)
	return nil
}

// flush sends the replies that wait for room.
func (s *server) flush() {
	for {
		s.mu.Lock()
		q := s.first
		s.mu.Unlock()
		if q == nil {
			return
		}
		held := q.held
		err := q.send()
		if err == via.ErrQueueFull {
			return
		}
		s.mu.Lock()
		if s.first = q.next; s.first == nil {
			s.last = nil
		}
		q.next = nil
		s.mu.Unlock()
		// An error is the connection's end, which Serve sees too.
		if err != nil {
			q.drop()
		} else if !held {
			_ = q.release()
		}
	}
}

// end drops the replies that still wait.
func (s *server) end() {
	s.mu.Lock()
	q := s.first
	s.first, s.last, s.ended = nil, nil, true
	s.mu.Unlock()
	for q != nil {
		next := q.next
		q.next = nil
		q.drop()
		q = next
	}
}

// queue has Serve send the reply of q once there is room. It returns false if Serve has ended.
func (s *server) queue(q *Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.last == nil {
		s.first = q
	} else {
		s.last.next = q
	}
	s.last = q
	s.more.Set()
	return true
}
