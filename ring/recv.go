package ring

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

var noPayload descriptors.DataSegment

// GetRecv returns the entry of the next message that has come. If none has it fails with
// ErrEmpty at once, bare; once the connection has ended, and all messages have been got, with
// ErrPeerGone, or ErrClosed. An entry that completed in error, such as one whose frame is
// no longer registered, is returned together with the error: release it too.
func (r *Ring) GetRecv() (*Entry, error) {
	s := &r.recv
	s.mu.Lock()
	c, err := r.d.RecvDone()
	if err == driver.ErrNotDone {
		s.mu.Unlock()
		return nil, ErrEmpty
	}
	if err == driver.ErrQueueEmpty {
		s.mu.Unlock()
		if err := r.broken(); err != nil {
			return nil, err
		}
		return nil, ErrEmpty // the program has all entries
	}
	if err != nil && (!c.Status.Done() || gone(err) || errors.Is(err, via.ErrDevice)) {
		if c.Status.Done() {
			s.next++ // flushed, or nonsense: it is the device's no more, and carries nothing
		}
		s.mu.Unlock()
		return nil, r.failed("receive", err)
	}
	e := s.entry(s.next)
	e.index = s.next
	s.next++
	e.at, e.came = 0, c
	e.length, e.tag, e.tagged = int(c.Length), c.Tag, c.Tagged
	e.state.Store(owned)
	s.mu.Unlock()
	if err == nil && e.memory == nil {
		if err = r.d.LoadRecv(e.index, e.message); err != nil {
			err = r.failed("receive", err)
		}
	}
	return e, err
}

// ReleaseRecv makes an entry free for another message, whose payload goes into the frame
// that is attached now. Entries are used again in the order in which they were got: one that
// is not released holds up those behind it. It fails with ErrNotOwned, and with ErrPeerGone or
// ErrClosed once the connection has ended.
func (r *Ring) ReleaseRecv(e *Entry) error {
	const op = "release receive"
	if e == nil || e.r != r || !e.receive {
		return r.refuse(op, ErrNotOwned, "", "not an entry of this receive ring")
	}
	if err := e.check(op); err != nil {
		return err
	}
	if err := r.d.PutRecv(e.index+r.recv.mask+1, e.payload); err != nil {
		return r.failed(op, err)
	}
	s := &r.recv
	s.mu.Lock()
	var err error
	if n := s.release(e); n > 0 {
		err = r.d.PostRecv(n)
	}
	s.mu.Unlock()
	if err != nil {
		return r.failed(op, err)
	}
	return nil
}

// Wait waits until GetRecv has something else to say than ErrEmpty, or ctx ends, with whose
// error it fails then. It polls, and then sleeps until the NIC's interrupt, as
// via.Options.Waiting says.
func (r *Ring) Wait(ctx context.Context) error { return r.wait(ctx, nil) }

// wait is Wait that early ends too.
func (r *Ring) wait(ctx context.Context, early *driver.Signal) error {
	return r.waited(r.d.WaitRecv(ctx, early))
}

// waited is the outcome of a wait of the driver.
func (r *Ring) waited(err error) error {
	if err == nil || err == driver.ErrQueueEmpty {
		return r.broken()
	}
	return r.failed("wait for ring", err)
}

// SetPlace has the payload of the next messages with tag land in f, whatever entry they come
// in; of a payload that is longer all is discarded. Of tags that are the same modulo 256 only
// the last one has a place. f is the NIC's until EndPlace.
func (r *Ring) SetPlace(tag uint32, f Frame) error {
	const op = "set place"
	payload, err := r.segment(op, f, true)
	if err != nil {
		return err
	}
	if payload.Handle == 0 {
		return r.refuse(op, driver.ErrInvalidParameter, "", "no memory")
	}
	return r.d.SetPlace(tag, payload)
}

// EndPlace withdraws the place of a tag. When it returns, nothing more lands there, also of
// a message that is on its way. It asks the NIC, and takes some microseconds.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.d.EndPlace(ctx, tag)
}
