package via

import (
	"context"
	"io"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// recvSide is what a Conn knows of its receive queue, guarded by mu if nothing else
// is said.
type recvSide struct {
	turns
	arrived  []*Descriptor // messages that have come and were not received; a ring
	first, n int
	finished bool  // the other side has ended
	failed   error // nothing more comes

	// Read without mu.
	limit   uint32 // messages that the other side has ever had room for
	noticed uint32 // grants that have come
	said    uint32 // how many of ours the other side says that it has noticed

	held     *Descriptor // received and not released: of the goroutine that receives
	released uint32      // receives ever posted for messages, counted by that goroutine
}

// Receive waits for the next message, which stays valid until Release. It fails
// with io.EOF when the other side has ended in order and all its messages have been
// received, and with what broke the connection otherwise.
func (c *Conn) Receive(ctx context.Context) ([]byte, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		m, err := c.message()
		if m != nil || err != nil {
			return m, err
		}
		if err := s.wait(ctx, c); err != nil && s.failed == nil && s.n == 0 {
			return nil, err
		}
	}
}

// TryReceive is Receive without the waiting: it returns nil if no message is there.
func (c *Conn) TryReceive() ([]byte, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, err := c.message(); m != nil || err != nil {
		return m, err
	}
	if err := c.lookInLocked(); err != nil && s.failed == nil {
		return nil, err
	}
	return c.message()
}

// message returns the message that has come first.
func (c *Conn) message() ([]byte, error) {
	s := &c.in
	switch {
	case s.held != nil:
		return nil, c.vi.nic.refuse("receive", ErrInvalidState, "call Release first", "the last message has not been released")
	case c.closed.Load():
		return nil, c.closedError()
	case s.n > 0:
		d := s.arrived[s.first]
		s.first, s.n = (s.first+1)%len(s.arrived), s.n-1
		s.held = d
		at := c.recvOffset(d)
		return c.memory.Bytes()[at : at+int(d.Length()) : at+c.max], nil
	case s.finished:
		return nil, io.EOF
	}
	return nil, s.failed
}

// recvOffset is where the buffer of a receive begins. It is found by the descriptor's
// own address, which the NIC cannot change.
func (c *Conn) recvOffset(d *Descriptor) int {
	i := (d.Token().Address - c.recv[0].Token().Address) / uint64(descriptors.DescriptorBytes(1))
	return (len(c.send) + int(i)) * c.stride
}

// Release gives back the message that was received last.
func (c *Conn) Release() error {
	s := &c.in
	d := s.held
	if d == nil {
		return c.vi.nic.refuse("release", ErrInvalidState, "", "no message is held")
	}
	s.held = nil
	d.Rearm()
	if err := c.vi.PostRecv(d); err != nil {
		return err
	}
	descriptors.StoreIndex(&s.released, s.released+1)
	if c.window == 0 {
		return nil
	}
	return c.grant(c.half())
}

// Held reports whether a message has been received and not been released.
func (c *Conn) Held() bool { return c.in.held != nil }

// lookIn takes note of what has come.
func (c *Conn) lookIn() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.lookInLocked()
}

func (c *Conn) lookInLocked() error {
	for s := &c.in; !s.busy && s.failed == nil; {
		d, err := c.vi.RecvDone()
		if err == ErrNotDone || err == ErrQueueEmpty && c.window == 0 {
			return nil
		}
		if err := c.came(d, err); err != nil {
			return err
		}
	}
	return c.in.failed
}

// came takes note of a receive that has completed, with in.mu held. What came before
// the connection broke is received first, so the receive queue has an end of its own.
func (c *Conn) came(d *Descriptor, err error) error {
	if err == nil {
		err = c.accept(d)
	} else if err == ErrQueueEmpty && c.broken() == nil {
		err = c.breach("more messages than were granted")
	}
	if !c.ends(err) {
		return err
	}
	if c.in.failed == nil {
		c.in.failed = c.lose(err)
	}
	return c.in.failed
}

// accept takes a message apart.
func (c *Conn) accept(d *Descriptor) error {
	if c.window == 0 {
		return c.keep(d)
	}
	s := &c.in
	word, is := d.Immediate()
	kind, said, limit := word&kindMask, word>>noticedShift&noticedMask, s.limit+word&grantMask
	switch {
	case !is || word&reservedBit != 0:
		return c.breach("a message without a header")
	case limit-descriptors.LoadIndex(&c.out.posted) > MaxConnDepth:
		return c.breach("grants for more than a queue holds")
	case c.unnoticed(said) > mostGrants:
		return c.breach("thanks for grants that were not given")
	case s.finished && kind != kindGrant:
		return c.breach("a message after the end")
	}
	descriptors.StoreIndex(&s.said, said)
	var err error
	switch kind {
	case kindMessage:
		err = c.keep(d)
	case kindGrant:
		descriptors.StoreIndex(&s.noticed, s.noticed+1)
		d.Rearm()
		err = c.vi.PostRecv(d)
	case kindEnd:
		s.finished = true
	default:
		return c.breach("a message of no kind")
	}
	descriptors.StoreIndex(&s.limit, limit)
	return err
}

// keep puts a message behind those that have come before it.
func (c *Conn) keep(d *Descriptor) error {
	s := &c.in
	if int64(d.Length()) > int64(c.max) || s.n == len(s.arrived) {
		return c.breach("a message that is too long, or one too many")
	}
	s.arrived[(s.first+s.n)%len(s.arrived)] = d
	s.n++
	return nil
}

// breach is what a side does that does not keep to the protocol of this package.
func (c *Conn) breach(what string) error {
	return c.vi.nic.refuse("receive", ErrProtocol, "both ends must be a via.Conn", "%s", what)
}
