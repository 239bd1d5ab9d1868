package ring

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// GetSend returns the next entry of the send ring, without a frame. If the ring is full it
// fails at once with via.ErrQueueFull, bare. Once the connection has ended it fails with
// ErrPeerGone or net.ErrClosed. Entries are sent in the order of GetSend: one that is not
// released holds up those behind it.
func (r *Ring) GetSend() (*Entry, error) {
	s := &r.send
	for {
		if err := r.broken(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.next-s.taken <= s.mask {
			e := s.entry(s.next)
			e.index = s.next
			e.at, e.length, e.tag, e.tagged = 0, 0, 0, false
			s.next++
			e.state.Store(owned)
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock()
		if r.reap(1) == 0 {
			if err := r.broken(); err != nil {
				return nil, err
			}
			return nil, via.ErrQueueFull
		}
	}
}

// ReleaseSend sends the message of an entry. It fails with ErrNotOwned, and with ErrPeerGone
// or net.ErrClosed once the connection has ended; the program keeps the entry then.
func (r *Ring) ReleaseSend(e *Entry) error {
	const op = "release send"
	if e == nil || e.r != r || e.receive {
		return r.refuse(op, ErrNotOwned, "", "not an entry of this send ring")
	}
	if err := e.check(op); err != nil {
		return err
	}
	var message []byte
	if e.memory == nil {
		message = e.message
	}
	err := r.d.PutSend(e.index, message, driver.RingSend{Payload: e.payload, Length: uint32(e.length), Tag: e.tag, Tagged: e.tagged})
	if err != nil {
		return r.failed(op, err)
	}
	s := &r.send
	s.mu.Lock()
	if n := s.release(e); n > 0 {
		err = r.d.PostSend(n)
	}
	s.mu.Unlock()
	if err != nil {
		return r.failed(op, err)
	}
	return nil
}

// CheckSent runs the done functions of all sends that have completed, and returns the number
// of these sends.
func (r *Ring) CheckSent() int { return r.reap(len(r.send.entries)) }

// reap takes back up to most completed sends, in order. It runs their done functions without
// a lock, as they may use the ring.
func (r *Ring) reap(most int) (n int) {
	s := &r.send
	for n < most {
		s.mu.Lock()
		c, err := r.d.SendDone()
		if err == descriptors.ErrNotDone || err == descriptors.ErrQueueEmpty {
			s.mu.Unlock()
			return n
		}
		if err != nil && !c.Status.Done() { // nothing was taken
			s.mu.Unlock()
			_ = r.failed("send", err)
			return n
		}
		e := s.entry(s.taken)
		done, after := e.done, e.after
		e.done, e.after, e.frame, e.payload = nil, nil, Frame{}, noPayload
		s.taken++
		s.mu.Unlock()
		n++
		if err != nil {
			err = r.failed("send", err)
		}
		if done != nil {
			done(err)
		}
		if after != nil {
			after()
		}
	}
	return n
}

// WaitSent waits until CheckSent finds a send, and returns the result of CheckSent. It fails
// with the error of ctx once that ends, and at once with via.ErrQueueEmpty, bare, if nothing
// is under way.
func (r *Ring) WaitSent(ctx context.Context) (int, error) {
	for {
		if n := r.CheckSent(); n > 0 {
			return n, nil
		}
		if err := r.broken(); err != nil {
			return 0, err
		}
		err := r.d.WaitSend(ctx, nil)
		if lost := r.broken(); err == descriptors.ErrQueueEmpty && lost == nil {
			return 0, err
		}
		if err := r.waited(err); err != nil {
			return 0, err
		}
	}
}
