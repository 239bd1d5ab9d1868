package ring

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
			e := &s.entries[s.next&s.mask]
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
	err := r.d.Send.Put(e.index, message, driver.RingEntry{Payload: e.payload, Length: uint32(e.length), Tag: e.tag, Tagged: e.tagged})
	if err == nil {
		err = r.send.release(e)
	}
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
	for s := &r.send; n < most; n++ {
		s.mu.Lock()
		c, err := r.d.Send.Done()
		if err != nil && !c.Status.Done() { // nothing was taken
			s.mu.Unlock()
			if err != via.ErrNotDone && err != via.ErrQueueEmpty {
				_ = r.failed("send", err)
			}
			return n
		}
		e := &s.entries[s.taken&s.mask]
		done, after := e.done, e.after
		e.done, e.after, e.frame, e.payload = nil, nil, Frame{}, datasheet.DataSegment{}
		s.taken++
		s.mu.Unlock()
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
		if n := r.reap(len(r.send.entries)); n > 0 {
			return n, nil
		}
		if err := r.broken(); err != nil {
			return 0, err
		}
		err := r.d.Send.Wait(ctx, nil)
		if lost := r.broken(); err == via.ErrQueueEmpty && lost == nil {
			return 0, err
		}
		if err := r.waited(err); err != nil {
			return 0, err
		}
	}
}

// GetRecv returns the entry of the next message. If there is none it fails at once with
// via.ErrNotDone, bare. Once the connection has ended, and all messages have been got, it fails
// with ErrPeerGone or net.ErrClosed. An entry that completed in error, such as one whose frame
// is closed, is returned together with the error: release it too.
func (r *Ring) GetRecv() (*Entry, error) {
	s := &r.recv
	s.mu.Lock()
	c, err := r.d.Recv.Done()
	if err != nil && (!c.Status.Done() || gone(err) || errors.Is(err, via.ErrDevice)) {
		if c.Status.Done() {
			s.next++ // the device has given the entry back, without a message
		}
		s.mu.Unlock()
		if err == via.ErrQueueEmpty { // the program has all entries
			if err = r.broken(); err == nil {
				err = via.ErrNotDone
			}
		}
		if err != via.ErrNotDone {
			err = r.failed("receive", err)
		}
		return nil, err
	}
	e := &s.entries[s.next&s.mask]
	e.index = s.next
	s.next++
	e.at, e.came = 0, c
	e.length, e.tag, e.tagged = int(c.Length), c.Tag, c.Tagged
	e.state.Store(owned)
	s.mu.Unlock()
	if err == nil && e.memory == nil {
		if err = r.d.Recv.Load(e.index, e.message); err != nil {
			err = r.failed("receive", err)
		}
	}
	return e, err
}

// ReleaseRecv makes an entry free for another message, whose payload goes into the frame that
// is attached now. Entries are used again in the order of GetRecv: one that is not released
// holds up those behind it. ReleaseRecv fails with ErrNotOwned, and with ErrPeerGone or
// net.ErrClosed once the connection has ended.
func (r *Ring) ReleaseRecv(e *Entry) error {
	const op = "release receive"
	if e == nil || e.r != r || !e.receive {
		return r.refuse(op, ErrNotOwned, "", "not an entry of this receive ring")
	}
	if err := e.check(op); err != nil {
		return err
	}
	err := r.d.Recv.Put(e.index+r.recv.mask+1, nil, driver.RingEntry{Payload: e.payload})
	if err == nil {
		err = r.recv.release(e)
	}
	if err != nil {
		return r.failed(op, err)
	}
	return nil
}

// Wait waits for the next message and returns its entry, as GetRecv does. It fails with the
// error of ctx once that ends, and at once with via.ErrQueueEmpty, bare, while the program
// has all entries. It polls first, and then sleeps until the NIC's interrupt.
func (r *Ring) Wait(ctx context.Context) (*Entry, error) {
	for {
		e, err := r.GetRecv()
		if err != via.ErrNotDone {
			return e, err
		}
		if err = r.d.Recv.Wait(ctx, nil); err == nil && !r.closed.Load() {
			continue // a message, or the end behind the last: another call may know of the end already
		}
		if lost := r.broken(); err == via.ErrQueueEmpty && lost == nil {
			return nil, err
		}
		if err := r.waited(err); err != nil {
			return nil, err
		}
	}
}

// waited returns the outcome of a wait of the driver.
func (r *Ring) waited(err error) error {
	if err == nil || err == via.ErrQueueEmpty {
		return r.broken()
	}
	return r.failed("wait for ring", err)
}

// lose records the first error that ended the connection, and returns that.
func (r *Ring) lose(err error) error {
	r.lost.CompareAndSwap(nil, &err)
	return r.broken()
}

// broken returns the error that ended the connection, or nil.
func (r *Ring) broken() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// failed turns an error of the driver into one of this ring. It records one that ends the
// connection.
func (r *Ring) failed(op string, err error) error {
	switch {
	case gone(err):
		return r.lose(driver.NewError(op, r.nic.Address(), fmt.Errorf("%w: %w", ErrPeerGone, err)))
	case errors.Is(err, via.ErrDevice), errors.Is(err, via.ErrClosed):
		return r.lose(err)
	}
	return err
}

// SetPlace has payloads of messages with this tag land in f, until EndPlace. A longer payload
// is discarded whole. Of tags that are equal modulo 256, only the last one has a place.
func (r *Ring) SetPlace(tag uint32, f Frame) error {
	const op = "set place"
	payload, err := r.segment(op, f, true)
	if err != nil {
		return err
	}
	if payload.Handle == 0 {
		return r.refuse(op, via.ErrInvalidParameter, "", "no memory")
	}
	return r.d.SetPlace(tag, payload)
}

// EndPlace ends the place of a tag. When it returns, nothing more lands there, not even of a
// message that is on its way. It asks the NIC, and takes some microseconds.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.d.EndPlace(ctx, tag)
}
