package ring

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

var noPayload datasheet.DataSegment

// GetRecv returns the entry of the next message. If there is none it fails at once with
// via.ErrNotDone, bare. Once the connection has ended, and all messages have been got, it fails
// with ErrPeerGone or net.ErrClosed. An entry that completed in error, such as one whose frame
// is closed, is returned together with the error: release it too.
func (r *Ring) GetRecv() (*Entry, error) {
	s := &r.recv
	s.mu.Lock()
	c, err := r.d.RecvDone()
	if err == descriptors.ErrNotDone {
		s.mu.Unlock()
		return nil, via.ErrNotDone
	}
	if err == descriptors.ErrQueueEmpty {
		s.mu.Unlock()
		if err := r.broken(); err != nil {
			return nil, err
		}
		return nil, via.ErrNotDone // the program has all entries
	}
	if err != nil && (!c.Status.Done() || gone(err) || errors.Is(err, via.ErrDevice)) {
		if c.Status.Done() {
			s.next++ // the device has given the entry back, without a message
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

// Wait waits for the next message and returns its entry, as GetRecv does. It fails with the
// error of ctx once that ends, and at once with via.ErrQueueEmpty, bare, while the program
// has all entries. It polls first, and then sleeps until the NIC's interrupt.
func (r *Ring) Wait(ctx context.Context) (*Entry, error) {
	for {
		e, err := r.GetRecv()
		if err != via.ErrNotDone {
			return e, err
		}
		err = r.d.WaitRecv(ctx, nil)
		if lost := r.broken(); err == descriptors.ErrQueueEmpty && lost == nil {
			return nil, err
		}
		if err := r.waited(err); err != nil {
			return nil, err
		}
	}
}

// wait waits until GetRecv has a message or an error, or early is set.
func (r *Ring) wait(ctx context.Context, early *driver.Signal) error {
	return r.waited(r.d.WaitRecv(ctx, early))
}

// waited returns the outcome of a wait of the driver.
func (r *Ring) waited(err error) error {
	if err == nil || err == descriptors.ErrQueueEmpty {
		return r.broken()
	}
	return r.failed("wait for ring", err)
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
		return r.refuse(op, descriptors.ErrInvalidParameter, "", "no memory")
	}
	return r.d.SetPlace(tag, payload)
}

// EndPlace ends the place of a tag. When it returns, nothing more lands there, not even of a
// message that is on its way. It asks the NIC, and takes some microseconds.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.d.EndPlace(ctx, tag)
}
