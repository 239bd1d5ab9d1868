package ring

import (
	"context"
	"errors"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// Serve takes the requests that come over a ring, whose other end has a Caller, and calls
// handler with each, one at a time, until ctx ends, the connection does, or the peer breaks
// the protocol. It returns nil if the peer has disconnected in order: that is how a ring ends
// whose client is done. (http.Server.Serve has an error for its end, as that comes from its own
// program: Serve returns one that matches ErrClosed if this end closes the ring.) Otherwise
// it returns the context's error, one that matches ErrPeerGone, or one that matches
// ErrProtocol. Nothing else uses the ring meanwhile.
//
// The handler, or whoever it hands the request to, answers each with Reply. A request keeps
// its entry of the receive ring until then; one that is not answered holds up the ring once
// as many others as it has entries have come.
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

// run is Serve, with an error for every end.
func (s *server) run(ctx context.Context, handler func(*Request)) error {
	r := s.r
	for taken := 0; ; taken++ {
		// Who asks waits for the answer, and nobody for what comes after it: that is done
		// while nothing comes, or has not been done for long.
		e, err := r.GetRecv()
		if err == ErrEmpty || taken%unchecked == 0 {
			r.CheckSent()
			s.flush()
		}
		switch {
		case err == ErrEmpty:
			if err := ctx.Err(); err != nil {
				return driver.NewError("serve", r.nic.Name(), err)
			}
			if err := r.waited(r.d.WaitAny(ctx, s.more)); err != nil {
				return err
			}
		case e == nil:
			return err
		case err != nil: // its frame is no memory any more
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

// unchecked is how many requests Serve takes before it looks what has become of its replies.
const unchecked = 8

// server is one run of Serve.
type server struct {
	r        *Ring
	requests []Request // by entry of the receive ring
	more     *driver.Signal

	mu          sync.Mutex
	first, last *Request // answered, and not sent because the ring is full
	ended       bool
}

// take hands the request in e to the handler.
func (s *server) take(e *Entry, handler func(*Request)) error {
	q := &s.requests[e.index&s.r.recv.mask]
	copy(q.message[:], e.message)
	h, err := parseHeader(q.message[:], request)
	if err != nil {
		return driver.NewError("serve", s.r.nic.Name(), err)
	}
	q.e, q.tag, q.room = e, h.tag, h.payload
	q.Bytes = q.message[headerSize:][:h.size]
	q.Discarded = e.Discarded()
	if q.Payload = e.frame; q.Payload.Length >= e.length {
		q.Payload.Length = e.length
	}
	q.state.Store(asked)
	handler(q)
	return nil
}

// flush sends the replies for which there was no room.
func (s *server) flush() {
	for {
		s.mu.Lock()
		q := s.first
		s.mu.Unlock()
		if q == nil {
			return
		}
		err := q.send()
		if err == ErrFull {
			return
		}
		s.mu.Lock()
		if s.first = q.next; s.first == nil {
			s.last = nil
		}
		q.next = nil
		s.mu.Unlock()
		// Errors are the connection's end, which Serve finds out.
		if err != nil {
			q.drop()
		} else {
			_ = q.sent()
		}
	}
}

// end is the end of Serve: what is not sent now never is.
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

// queue has Serve send the reply of q as soon as there is room. It returns false if Serve
// has ended.
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
