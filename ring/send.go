package ring

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
)

// GetSend returns the next entry of the send ring, empty and without a frame. If the ring is
// full it fails with ErrFull at once, bare; once the connection has ended with ErrPeerGone,
// or ErrClosed. The completion of the message that the entry was used for before runs
// here. Entries are sent in the order in which they were got: one that is not released holds
// up those behind it.
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
			return nil, ErrFull
		}
	}
}

// ReleaseSend sends the message of an entry. It fails with ErrNotOwned, and with ErrPeerGone
// or ErrClosed once the connection has ended; the entry is the program's still then.
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

// CheckSent runs the completions of all messages that have been sent, and returns how many
// these were, those without a completion included.
func (r *Ring) CheckSent() int { return r.reap(len(r.send.entries)) }

// reap takes back up to most sends that have completed, in order, and runs their
// completions, without a lock: they may use the ring.
func (r *Ring) reap(most int) (n int) {
	s := &r.send
	for n < most {
		s.mu.Lock()
		c, err := r.d.SendDone()
		if err == driver.ErrNotDone || err == driver.ErrQueueEmpty {
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

// WaitSent waits until a send has completed that CheckSent would find, or ctx ends.
func (r *Ring) WaitSent(ctx context.Context) error {
	if err := r.broken(); err != nil {
		return err
	}
	return r.waited(r.d.WaitSend(ctx, nil))
}
