package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// sendSide is what a Conn knows of its send queue. Counters are free-running.
type sendSide struct {
	turns
	// added counts messages, of which those up to posted have been handed to the NIC.
	// Both are counted by the goroutine that posts; others read posted. Message i has
	// descriptor i modulo the depth.
	added, posted uint32
	// What follows is guarded by mu; what other goroutines read is
	// written as an index.
	completed                       uint32
	controlPosted, controlCompleted uint32
	granted                         uint32 // receives that the other side was told of
	grants                          uint32 // sent
	ended                           bool
	look                            [16]*Descriptor
}

// Acquire waits for a free send buffer of MaxMessage bytes, and for room at the
// other side. The buffer is the caller's until Post; acquiring again without
// posting returns the same one.
func (c *Conn) Acquire(ctx context.Context) ([]byte, error) {
	for {
		b, err := c.buffer()
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
	b, err := c.buffer()
	if b != nil || err != nil {
		return b, err
	}
	if c.full() {
		err = c.lookOut()
	} else {
		err = c.lookIn()
	}
	if err != nil {
		return nil, err
	}
	return c.buffer()
}

// buffer returns the next send buffer if it is free and there is room for its
// message.
func (c *Conn) buffer() ([]byte, error) {
	if err := c.broken(); err != nil {
		return nil, err
	}
	if c.full() || c.window != 0 && c.credit() == 0 {
		return nil, nil
	}
	if c.inline {
		return c.send[c.slot()].Inline()[:c.max:c.max], nil
	}
	at := c.slot() * c.stride
	return c.buffers[at : at+c.max : at+c.max], nil
}

// slot is the number of the next message's descriptor and buffer.
func (c *Conn) slot() int { return int(c.out.added % uint32(len(c.send))) }

func (c *Conn) full() bool {
	return c.out.added-descriptors.LoadIndex(&c.out.completed) == uint32(len(c.send))
}

// credit is for how many more messages the other side has room.
func (c *Conn) credit() uint32 { return descriptors.LoadIndex(&c.in.limit) - c.out.added }

// awaitRoom waits for what buffer lacks.
func (c *Conn) awaitRoom(ctx context.Context) error {
	if err := c.PostBatch(); err != nil { // these are what it may wait for
		return err
	}
	if c.full() {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		if !c.full() {
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
	if c.credit() != 0 {
		return nil
	}
	return c.in.wait(ctx, c)
}

// Post sends the first n bytes of the buffer that Acquire returned last.
func (c *Conn) Post(n int) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if err := c.add(n); err != nil {
		return err
	}
	return c.postAdded()
}

// Add is Post, but leaves the message to the next Post or PostBatch, which sends all
// that has been added with one doorbell. Acquire returns another buffer then; before it
// waits it sends what has been added.
func (c *Conn) Add(n int) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.add(n)
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

// maySend says why nothing can be sent any more.
func (c *Conn) maySend() error {
	switch err := c.broken(); {
	case err != nil:
		return err
	case c.closed.Load():
		return c.closedError()
	case c.out.ended:
		return c.vi.nic.refuse("post", ErrInvalidState, "", "CloseSend has ended the sending")
	}
	return nil
}

// add makes the next message, with out.mu held.
func (c *Conn) add(n int) error {
	const op = "post"
	if err := c.maySend(); err != nil {
		return err
	}
	switch {
	case c.full() || c.window != 0 && c.credit() == 0:
		return c.vi.nic.refuse(op, ErrInvalidState, "call Acquire first", "no buffer has been acquired")
	case n < 0 || n > c.max:
		return c.tooLong(op, n)
	}
	d := c.send[c.slot()]
	d.Prepare()
	var err error
	if c.inline {
		err = d.SetInline(n)
	} else {
		err = c.memory.AddTo(d, c.slot()*c.stride, n)
	}
	if err == nil {
		c.out.added++
	}
	return err
}

// postAdded hands the NIC what has been added, with out.mu held.
func (c *Conn) postAdded() error {
	s := &c.out
	if err := c.maySend(); err != nil {
		return err
	}
	first := s.posted % uint32(len(c.send))
	batch := c.ring[first : first+s.added-s.posted]
	if c.window != 0 {
		for _, d := range batch {
			d.SetImmediate(c.word(kindMessage))
		}
	}
	descriptors.StoreIndex(&s.posted, s.added)
	if len(batch) == 1 {
		return c.post(batch[0])
	}
	if _, err := c.vi.PostSendBatch(batch); err != nil {
		return c.lose(err)
	}
	return nil
}

// post is called with out.mu held, so that messages go out in the order in which their
// words were made: what these say counts on.
func (c *Conn) post(d *Descriptor) error {
	if err := c.vi.PostSend(d); err != nil {
		// The other side counts messages: there is no going on without this one.
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
	defer c.unlockSending()
	b, err := c.Acquire(ctx)
	if err != nil {
		return err
	}
	return c.Post(copy(b, p))
}

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

func (c *Conn) unlockSending() { <-c.sending }

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
	n, err := c.vi.SendDoneBatch(s.look[:])
	if err == ErrNotDone {
		return nil
	}
	if err != nil {
		return c.sent(nil, err)
	}
	for _, d := range s.look[:n] {
		if err := c.sent(d, nil); err != nil {
			return err
		}
	}
	return nil
}

// sent takes note of a send that has completed, with out.mu held.
func (c *Conn) sent(d *Descriptor, err error) error {
	s := &c.out
	switch {
	case err == ErrQueueEmpty: // the connection has ended
		return c.broken()
	case c.ends(err):
		return c.lose(err)
	case err != nil:
		return err
	case d == c.send[s.completed%uint32(len(c.send))]:
		descriptors.StoreIndex(&s.completed, s.completed+1)
	default:
		s.controlCompleted++
	}
	return nil
}
