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

	released uint32 // receives ever posted for messages

	// Guarded by mu, and written by the goroutine that receives only.
	held []*Descriptor // received and not released
	look [16]*Descriptor
}

// Receive waits for the next message, which stays valid until Release. It fails
// with io.EOF when the other side has ended in order and all its messages have been
// received, and with what broke the connection otherwise.
func (c *Conn) Receive(ctx context.Context) ([]byte, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.ready(); err != nil {
		return nil, err
	}
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
	if err := c.ready(); err != nil {
		return nil, err
	}
	if s.n == 0 {
		if err := c.lookInLocked(1); err != nil && s.failed == nil {
			return nil, err
		}
	}
	return c.message()
}

// ReceiveBatch is TryReceive for several messages: it puts those that have come into
// into, as many as it has room for, and returns how many these are. Release gives all
// of them back with one doorbell.
func (c *Conn) ReceiveBatch(into [][]byte) (int, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.ready(); err != nil {
		return 0, err
	}
	for n := range into {
		if s.n == 0 {
			if err := c.lookInLocked(len(s.look)); err != nil && s.failed == nil && n == 0 {
				return 0, err
			}
		}
		m, err := c.message()
		if m == nil && n == 0 {
			return 0, err
		}
		if m == nil { // what ends the connection is for the next call
			return n, nil
		}
		into[n] = m
	}
	return len(into), nil
}

// ready refuses to receive while messages are held.
func (c *Conn) ready() error {
	if len(c.in.held) > 0 {
		return c.vi.nic.refuse("receive", ErrInvalidState, "call Release first", "what was received last has not been released")
	}
	return nil
}

// message takes the message that has come first.
func (c *Conn) message() ([]byte, error) {
	s := &c.in
	switch {
	case c.closed.Load():
		return nil, c.closedError()
	case s.n > 0:
		d := s.arrived[s.first]
		if s.first++; s.first == len(s.arrived) {
			s.first = 0
		}
		s.n--
		s.held = append(s.held, d)
		at := c.recvOffset(d)
		return c.buffers[at : at+int(d.Length()) : at+c.max], nil
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

// Release gives back what was received last: a message, or a batch of them. If the
// connection has broken meanwhile, Receive says so behind the messages that had come.
func (c *Conn) Release() error {
	if err := c.release(); err != nil || c.window == 0 {
		return err
	}
	if err := c.grant(c.half()); err != nil && c.broken() == nil {
		return err
	}
	return nil
}

func (c *Conn) release() error {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.held)
	switch {
	case n == 0:
		return c.vi.nic.refuse("release", ErrInvalidState, "", "no message is held")
	case c.closed.Load():
		return c.closedError()
	}
	batch := s.held
	s.held = s.held[:0]
	for _, d := range batch {
		d.Rearm()
	}
	var err error
	if n == 1 {
		err = c.vi.PostRecv(batch[0])
	} else {
		_, err = c.vi.PostRecvBatch(batch)
	}
	if err != nil {
		return err
	}
	descriptors.StoreIndex(&s.released, s.released+uint32(n))
	return nil
}

// lookIn takes note of what has come.
func (c *Conn) lookIn() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.lookInLocked(len(c.in.look))
}

// lookInLocked looks once, for as many as most messages: a look may run the NIC.
func (c *Conn) lookInLocked(most int) error {
	s := &c.in
	if s.busy || s.failed != nil || c.closed.Load() {
		return s.failed
	}
	n, err := 1, error(nil)
	if most == 1 {
		s.look[0], err = c.vi.RecvDone()
	} else {
		n, err = c.vi.RecvDoneBatch(s.look[:most])
	}
	if err == ErrNotDone || err == ErrQueueEmpty && c.window == 0 {
		return nil
	}
	if err != nil {
		return c.came(nil, err)
	}
	for _, d := range s.look[:n] {
		if err := c.came(d, nil); err != nil {
			return err
		}
	}
	return nil
}

// came takes note of a receive that has completed, with in.mu held. What came before
// the connection broke is received first, so the receive queue has an end of its own.
func (c *Conn) came(d *Descriptor, err error) error {
	switch {
	case c.closed.Load(): // the descriptor may be gone, and Close flushes the other queue
		c.in.failed = c.closedError()
		return c.in.failed
	case err == nil:
		err = c.accept(d)
	case err == ErrQueueEmpty:
		if err = c.broken(); err == nil {
			err = c.breach("more messages than were granted")
		}
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
	at := s.first + s.n
	if at >= len(s.arrived) {
		at -= len(s.arrived)
	}
	s.arrived[at] = d
	s.n++
	return nil
}

// breach is what a side does that does not keep to the protocol of this package.
func (c *Conn) breach(what string) error {
	return c.vi.nic.refuse("receive", ErrProtocol, "both ends must be a via.Conn", "%s", what)
}
