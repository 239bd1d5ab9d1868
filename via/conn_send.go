package via

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sendSide is a Conn's state of its send queue. Counters are free-running.
type sendSide struct {
	turns
	// Of the goroutine that posts: the slot of the next message, and whether it has its buffer.
	slot     int
	acquired bool
	// What follows is guarded by mu; what other goroutines read is
	// written as an index.
	ended     atomic.Bool
	posted    uint32 // messages, by the goroutine that posts
	last      uint32 // 1 once the end was posted, too
	completed uint32 // of both
	look      [16]*Descriptor
}

// endMark is the immediate data of the message without bytes that ends the sending on a reliable
// Conn. No other message has immediate data.
const endMark = 0x454e4421

// Acquire waits for a free send buffer of MaxMessage bytes, which is the caller's until Post;
// acquiring again without posting returns the same one. After CloseSend it fails with
// ErrInvalidState, as Post does.
func (c *Conn) Acquire(ctx context.Context) ([]byte, error) {
	for {
		// A look finds all that has completed, of which a wait would find one.
		b, err := c.TryAcquire()
		if b != nil || err != nil {
			return b, err
		}
		if err := c.awaitBuffer(ctx); err != nil {
			return nil, err
		}
	}
}

// TryAcquire is Acquire without the waiting: it returns nil if no buffer is free.
func (c *Conn) TryAcquire() ([]byte, error) {
	for looked := false; ; looked = true {
		switch {
		case c.stopped():
			return nil, c.maySend()
		case c.hasBuffer():
			c.out.acquired = true
			if c.inline {
				return c.send[c.out.slot].Inline()[:c.max:c.max], nil
			}
			at := c.out.slot * c.stride
			return c.buffers[at : at+c.max : at+c.max], nil
		case looked:
			return nil, nil
		}
		c.out.mu.Lock()
		err := c.lookOut()
		c.out.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// hasBuffer reports whether a send buffer is free.
func (c *Conn) hasBuffer() bool {
	return c.out.posted-datasheet.LoadIndex(&c.out.completed) < uint32(c.sends)
}

// awaitBuffer waits for what TryAcquire lacks.
func (c *Conn) awaitBuffer(ctx context.Context) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.hasBuffer() {
		return nil
	}
	err := c.awaitSent(ctx)
	if err != nil && ctx.Err() != nil && c.broken() == nil {
		return c.nic.Fail("send", fmt.Errorf("all %d send buffers are in use, the peer must receive first: %w", c.sends, ctx.Err()))
	}
	return err
}

// Post sends the first n bytes of the buffer that Acquire returned last.
func (c *Conn) Post(n int) error {
	const op = "post"
	s := &c.out
	switch {
	case c.stopped():
		return c.maySend()
	case !s.acquired:
		return c.nic.Refuse(op, ErrInvalidState, "call Acquire first", "no buffer has been acquired")
	case n < 0 || n > c.max:
		return c.tooLong(op, n)
	}
	s.acquired = false
	first := s.slot
	if s.slot++; s.slot == c.sends {
		s.slot = 0
	}
	s.mu.Lock()
	err := c.post(c.send[first:first+1], n)
	s.mu.Unlock()
	return err
}

// post hands the NIC the descriptor of a message of n bytes, with out.mu held.
func (c *Conn) post(one []*Descriptor, n int) error {
	if c.stopped() { // its memory may be gone
		return c.maySend()
	}
	if d := one[0]; !c.inline {
		d.Segments()[0].Length = uint32(n)
	} else if err := d.SetInline(n); err != nil {
		return c.lose(err)
	}
	one[0].Rearm()
	c.out.posted++
	if _, err := c.out.mu.PostHeld(one); err != nil {
		// The slots count messages: there is no going on without this.
		return c.lose(err)
	}
	return nil
}

// stopped reports whether there is something for maySend to say.
func (c *Conn) stopped() bool { return c.lost.Load() != nil || c.closed.Load() || c.out.ended.Load() }

// maySend says why nothing can be sent any more.
func (c *Conn) maySend() error {
	switch err := c.broken(); {
	case err != nil:
		return err
	case c.closed.Load():
		return c.closedError()
	case c.out.ended.Load():
		return c.nic.Refuse("post", ErrInvalidState, "", "CloseSend has ended the sending")
	}
	return nil
}

func (c *Conn) tooLong(op string, n int) error {
	return c.nic.Refuse(op, ErrInvalidParameter, "", "message of %d bytes, 0 to %d are allowed", n, c.max)
}

// Send copies p, of at most MaxMessage bytes, into a buffer and posts it. It waits for nothing
// but the buffer: if ctx ends before, nothing of p is sent. Flush waits until the message has
// arrived.
func (c *Conn) Send(ctx context.Context, p []byte) error {
	if len(p) > c.max {
		return c.tooLong("send", len(p))
	}
	if err := c.lockSending(ctx); err != nil {
		return err
	}
	defer func() { <-c.sending }()
	b, err := c.Acquire(ctx)
	if err != nil {
		return err
	}
	return c.Post(copy(b, p))
}

// lockSending makes the caller alone send until it receives from sending.
func (c *Conn) lockSending(ctx context.Context) error {
	select {
	case c.sending <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.sending <- struct{}{}:
		return nil
	case <-ctx.Done():
		return c.nic.Fail("send", ctx.Err())
	}
}

// Flush waits until all that was posted is in the memory of the other side.
func (c *Conn) Flush(ctx context.Context) error {
	s := &c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.outstanding() != 0 && c.broken() == nil {
		if err := c.awaitSent(ctx); err != nil {
			return err
		}
	}
	return c.broken()
}

// outstanding is the number of sends that have not completed.
func (s *sendSide) outstanding() uint32 { return s.posted + s.last - s.completed }

// CloseSend ends the sending: when the other side has received all messages, it
// gets io.EOF. Receiving goes on.
func (c *Conn) CloseSend(ctx context.Context) error {
	if !c.reliable {
		return c.nic.Refuse("end sending", ErrNotSupported, "", "an unreliable connection has no end")
	}
	if err := c.lockSending(ctx); err != nil {
		return err
	}
	defer func() { <-c.sending }()
	return c.end()
}

// end tells the other side that no message follows.
func (c *Conn) end() error {
	s := &c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.broken(); err != nil || !c.reliable || s.ended.Swap(true) {
		return err
	}
	s.last = 1
	if _, err := s.mu.PostHeld(c.last); err != nil {
		return c.lose(err)
	}
	return nil
}

// lookOut takes note of the sends that have completed, with out.mu held.
func (c *Conn) lookOut() error {
	s := &c.out
	if s.busy || s.outstanding() == 0 || c.broken() != nil {
		return c.broken()
	}
	return c.sent(s.mu.DoneBatchHeld(s.look[:]))
}

// awaitSent waits until a send has completed or another call has looked, with out.mu held, which
// it lets go meanwhile.
func (c *Conn) awaitSent(ctx context.Context) error {
	d, err := c.out.wait(ctx, c.nic, c.vi.SendWait)
	if d == nil && err == nil {
		return nil
	}
	return c.sent(1, err)
}

// sent takes note of n sends that have completed, with out.mu held.
func (c *Conn) sent(n int, err error) error {
	switch {
	case err == nil:
		datasheet.StoreIndex(&c.out.completed, c.out.completed+uint32(n))
	case err == ErrNotDone:
		return nil
	case err == ErrQueueEmpty: // the connection has ended
		return c.broken()
	case c.ends(err):
		return c.lose(err)
	}
	return err
}
