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
	// Of the goroutine that posts: how many messages there have been, the slot of the
	// next one, which is that number modulo the depth, and the bytes of those in slots.
	added    uint32
	slot     int
	lengths  []int32
	acquired bool // its buffer
	// What follows is guarded by mu; what other goroutines read is
	// written as an index.
	ended                           atomic.Bool
	posted                          uint32 // of added, by the goroutine that posts
	completed                       uint32
	oldest                          int // completed modulo the depth
	controlPosted, controlCompleted uint32
	granted                         uint32 // receives that the other side was told of, without the first window
	grants                          uint32 // sent
	look                            [16]*Descriptor
}

// Acquire waits for a free send buffer of MaxMessage bytes, and for room at the
// other side. The buffer is the caller's until Post; acquiring again without
// posting returns the same one. After CloseSend it fails with ErrInvalidState, as Post does.
func (c *Conn) Acquire(ctx context.Context) ([]byte, error) {
	for {
		// A look finds all that has completed, of which a wait would find one.
		b, err := c.TryAcquire()
		if b != nil || err != nil {
			return b, err
		}
		if err := c.awaitRoom(ctx); err != nil {
			return nil, err
		}
	}
}

// TryAcquire is Acquire without the waiting: it returns nil if there is no buffer
// or no room.
func (c *Conn) TryAcquire() ([]byte, error) {
	for looked := false; ; looked = true {
		if c.stopped() {
			return nil, c.maySend()
		}
		free, credit := c.room()
		switch {
		case credit > MaxConnDepth:
			return nil, c.lose(c.breach("grants for more than a queue holds"))
		case free != 0 && credit != 0:
			c.out.acquired = true
			if c.inline {
				return c.send[c.out.slot].Inline()[:c.max:c.max], nil
			}
			at := c.out.slot * c.stride
			return c.buffers[at : at+c.max : at+c.max], nil
		case looked:
			return nil, nil
		}
		var err error
		if free == 0 {
			err = c.lookOut()
		} else {
			err = c.lookIn()
		}
		if err != nil {
			return nil, err
		}
	}
}

// room returns how many send buffers are free, and for how many more messages the other side
// has room: one if it does not say.
func (c *Conn) room() (free, credit uint32) {
	free, credit = uint32(len(c.send))-(c.out.added-datasheet.LoadIndex(&c.out.completed)), 1
	if c.window != 0 {
		credit = datasheet.LoadIndex(&c.in.limit) - c.out.added
	}
	return free, credit
}

// awaitRoom waits for what TryAcquire lacks.
func (c *Conn) awaitRoom(ctx context.Context) error {
	if err := c.PostBatch(); err != nil { // it may wait for these
		return err
	}
	if free, _ := c.room(); free == 0 {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		if free, _ := c.room(); free != 0 {
			return nil
		}
		return c.out.wait(ctx, c)
	}
	// The other side may wait for room too.
	if err := c.grant(1); err != nil {
		return err
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if _, credit := c.room(); credit != 0 {
		return nil
	}
	err := c.in.wait(ctx, c)
	if err != nil && ctx.Err() != nil && c.broken() == nil {
		return c.vi.nic.fail("send", fmt.Errorf("the peer has given no room, it must receive first: %w", ctx.Err()))
	}
	return err
}

// Post sends the first n bytes of the buffer that Acquire returned last.
func (c *Conn) Post(n int) error {
	err := c.Add(n)
	if err == nil {
		c.out.mu.Lock()
		err = c.postAdded()
		c.out.mu.Unlock()
	}
	return err
}

// Add is Post, but leaves the message to the next Post or PostBatch, which sends all
// that has been added with one doorbell. Acquire returns another buffer then; before it
// waits it sends what has been added.
func (c *Conn) Add(n int) error {
	const op = "post"
	s := &c.out
	if c.stopped() {
		return c.maySend()
	}
	switch {
	case !s.acquired:
		return c.vi.nic.refuse(op, ErrInvalidState, "call Acquire first", "no buffer has been acquired")
	case n < 0 || n > c.max:
		return c.tooLong(op, n)
	}
	s.acquired = false
	s.lengths[s.slot] = int32(n)
	s.added++
	if s.slot++; s.slot == len(s.lengths) {
		s.slot = 0
	}
	return nil
}

// PostBatch sends what has been added, with one doorbell.
func (c *Conn) PostBatch() error {
	if c.out.added == c.out.posted {
		return c.broken()
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.postAdded()
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
		return c.vi.nic.refuse("post", ErrInvalidState, "", "CloseSend has ended the sending")
	}
	return nil
}

// postAdded hands the NIC what has been added, with out.mu held.
func (c *Conn) postAdded() error {
	s := &c.out
	if c.stopped() {
		return c.maySend()
	}
	n := int(s.added - s.posted)
	first := s.slot - n
	if first < 0 {
		first += len(s.lengths)
	}
	batch := c.ring[first : first+n]
	word := uint32(0)
	if c.window != 0 {
		word = c.word(kindMessage)
	}
	for i, d := range batch {
		at := first + i
		if at >= len(s.lengths) {
			at -= len(s.lengths)
		}
		n := s.lengths[at]
		if !c.inline {
			d.Segments()[0].Length = uint32(n)
		} else if err := d.SetInline(int(n)); err != nil {
			return c.lose(err)
		}
		d.Rearm()
		if c.window != 0 {
			d.SetImmediate(word)
		}
		word &^= grantMask // granted once
	}
	s.posted = s.added
	if _, err := s.mu.PostHeld(batch); err != nil {
		// The other side counts messages: there is no going on without these.
		return c.lose(err)
	}
	return nil
}

func (c *Conn) tooLong(op string, n int) error {
	return c.vi.nic.refuse(op, ErrInvalidParameter, "", "message of %d bytes, 0 to %d are allowed", n, c.max)
}

// Send copies p, of at most MaxMessage bytes, into a buffer and posts it. It returns
// when the message is on its way; Flush waits until it has arrived.
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

// lockSending has the caller alone send until it receives from sending.
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
		return c.vi.nic.fail("send", ctx.Err())
	}
}

// Flush waits until all that was posted is in the memory of the other side.
func (c *Conn) Flush(ctx context.Context) error {
	s := &c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.outstanding() && c.broken() == nil {
		if err := s.wait(ctx, c); err != nil {
			return err
		}
	}
	return c.broken()
}

func (s *sendSide) outstanding() bool {
	return s.completed != s.posted || s.controlCompleted != s.controlPosted
}

// lookOut takes note of the sends that have completed.
func (c *Conn) lookOut() error {
	s := &c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.lookOutLocked()
}

func (c *Conn) lookOutLocked() error {
	s := &c.out
	if s.busy || !s.outstanding() || c.broken() != nil {
		return c.broken()
	}
	n, err := s.mu.DoneBatchHeld(s.look[:])
	if err == ErrNotDone {
		return nil
	}
	if err != nil {
		return c.sent(nil, err)
	}
	c.count(s.look[:n])
	return nil
}

// count takes note of sends that have completed.
func (c *Conn) count(ds []*Descriptor) {
	s := &c.out
	completed := s.completed
	for _, d := range ds {
		if d != c.send[s.oldest] {
			s.controlCompleted++
			continue
		}
		completed++
		if s.oldest++; s.oldest == len(c.send) {
			s.oldest = 0
		}
	}
	datasheet.StoreIndex(&s.completed, completed)
}

// sent takes note of a send that has completed, with out.mu held.
func (c *Conn) sent(d *Descriptor, err error) error {
	s := &c.out
	switch {
	case err == nil:
		s.look[0] = d
		c.count(s.look[:1])
	case err == ErrQueueEmpty: // the connection has ended
		return c.broken()
	case c.ends(err):
		return c.lose(err)
	default:
		return err
	}
	return nil
}
