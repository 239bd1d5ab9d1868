package via

import (
	"context"
	"io"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// recvSide is a Conn's state of its receive queue, guarded by mu if nothing else
// is said. Counters are free-running.
type recvSide struct {
	turns
	// ring has the receives of messages from the moment they have come until they are
	// posted again, and lengths what came with them: message i at i modulo the length,
	// a power of two. Of the came messages the application has received some, and
	// released some of those.
	ring           []*Descriptor
	lengths        []int32 // bytes; read once, as the NIC may write to descriptors
	came, received uint32
	finished       bool  // the other side has ended
	failed         error // nothing more comes

	// Read without mu.
	limit    uint32 // messages that the other side has ever had room for
	noticed  uint32 // grants that have come
	said     uint32 // how many of ours the other side says that it has noticed
	reposted uint32 // messages whose receives have been posted again

	// Written without mu, by the goroutine that receives.
	released uint32

	look [16]*Descriptor
}

// Receive waits for the next message, which stays valid until Release. It fails
// with io.EOF when the other side has ended in order and all its messages have been
// received, and with what broke the connection otherwise.
func (c *Conn) Receive(ctx context.Context) ([]byte, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		m, err := c.tryReceive()
		if m != nil || err != nil {
			return m, err
		}
		if err := s.wait(ctx, c); err != nil && s.failed == nil && s.came == s.received {
			return nil, err
		}
	}
}

// TryReceive is Receive without the waiting: it returns nil if no message is there.
func (c *Conn) TryReceive() ([]byte, error) {
	s := &c.in
	// Here and in what else each message passes nothing is deferred, which takes as long
	// as the lock.
	s.mu.Lock()
	m, err := c.tryReceive()
	s.mu.Unlock()
	return m, err
}

// tryReceive is TryReceive with the lock held.
func (c *Conn) tryReceive() ([]byte, error) {
	s := &c.in
	if s.received != datasheet.LoadIndex(&s.released) {
		return nil, c.ready()
	}
	if s.came == s.received && !s.busy && s.failed == nil && !c.closed.Load() {
		// For one message: to look for another one behind it may run the NIC.
		d, err := s.mu.DoneHeld(true)
		if err == nil {
			err = c.accept(d)
		}
		if err != nil {
			if err = c.nothing(err); err != nil && s.failed == nil {
				return nil, err
			}
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
		if s.came == s.received {
			if err := c.lookInLocked(); err != nil && s.failed == nil && n == 0 {
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
	if c.in.received != datasheet.LoadIndex(&c.in.released) {
		return c.vi.nic.refuse("receive", ErrInvalidState, "call Release first", "what was received last has not been released")
	}
	return nil
}

// message takes the message that has come first.
func (c *Conn) message() ([]byte, error) {
	s := &c.in
	if s.came == s.received || c.closed.Load() {
		return nil, c.noMessage()
	}
	i := int(s.received) & (len(s.ring) - 1)
	s.received++
	at := int(s.ring[i].User().Word)
	return c.buffers[at : at+int(s.lengths[i]) : at+c.max], nil
}

// noMessage is why there is none: nil if one may come yet.
func (c *Conn) noMessage() error {
	switch {
	case c.closed.Load():
		return c.closedError()
	case c.in.finished:
		return io.EOF
	}
	return c.in.failed
}

// Release gives back what was received last: a message, or a batch of them. If the
// connection has broken meanwhile, Receive says so behind the messages that had come.
func (c *Conn) Release() error {
	s := &c.in
	switch {
	case s.released == s.received:
		return c.vi.nic.refuse("release", ErrInvalidState, "", "no message is held")
	case c.closed.Load():
		return c.closedError()
	}
	datasheet.StoreIndex(&s.released, s.received)
	if s.released-datasheet.LoadIndex(&s.reposted) >= c.lazy {
		if err := c.repost(); err != nil {
			return err
		}
	}
	if c.window == 0 {
		return nil
	}
	if err := c.grant(c.half); err != nil && c.broken() == nil {
		return err
	}
	return nil
}

// repost posts the receives of all messages that were released.
func (c *Conn) repost() error {
	s := &c.in
	s.mu.Lock()
	err := c.repostLocked()
	s.mu.Unlock()
	return err
}

func (c *Conn) repostLocked() error {
	s := &c.in
	for {
		n := int(datasheet.LoadIndex(&s.released) - s.reposted)
		switch {
		case n == 0:
			return nil
		case c.closed.Load():
			return c.closedError()
		}
		first := int(s.reposted) & (len(s.ring) - 1)
		batch := s.ring[first:min(first+n, len(s.ring))]
		for _, d := range batch {
			d.Rearm()
		}
		n, err := s.mu.PostHeld(batch)
		datasheet.StoreIndex(&s.reposted, s.reposted+uint32(n))
		if err != nil {
			return err
		}
	}
}

// lookIn takes note of what has come.
func (c *Conn) lookIn() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.lookInLocked()
}

// lookInLocked looks once, for as many as fit into look.
func (c *Conn) lookInLocked() error {
	s := &c.in
	if s.busy || s.failed != nil || c.closed.Load() {
		return s.failed
	}
	n, err := s.mu.DoneBatchHeld(s.look[:])
	if err != nil {
		return c.nothing(err)
	}
	for _, d := range s.look[:n] {
		if err := c.accept(d); err != nil {
			return c.came(nil, err)
		}
	}
	return nil
}

// nothing is why a look has found no message: nil if one may come yet.
func (c *Conn) nothing(err error) error {
	if code, is := err.(Code); is && (code == ErrNotDone || code == ErrQueueEmpty && c.window == 0) {
		return nil
	}
	return c.came(nil, err)
}

// came takes note of a receive that has completed, with in.mu held. What came before
// the connection broke is received first, so the receive queue has an end of its own.
func (c *Conn) came(d *Descriptor, err error) error {
	switch {
	case c.closed.Load(): // the descriptor may be gone, and Close flushes the other queue
		c.in.failed = c.closedError()
		return c.in.failed
	case err == nil:
		if err = c.accept(d); err == nil {
			return nil
		}
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
	said := word >> noticedShift & noticedMask
	switch {
	case !is || word&reservedBit != 0:
		return c.breach("a message without a header")
	case s.finished && word&kindMask != kindGrant:
		return c.breach("a message after the end")
	}
	if said != s.said {
		if c.unnoticed(said) > mostGrants {
			return c.breach("acknowledges credits that were never granted")
		}
		datasheet.StoreIndex(&s.said, said)
	}
	var err error
	switch word & kindMask {
	case kindMessage:
		err = c.keep(d)
	case kindGrant:
		datasheet.StoreIndex(&s.noticed, s.noticed+1)
		d.Rearm()
		_, err = s.mu.PostHeld([]*Descriptor{d})
	case kindEnd:
		s.finished = true
	default:
		return c.breach("a message of no kind")
	}
	if granted := word & grantMask; granted != 0 {
		datasheet.StoreIndex(&s.limit, s.limit+granted)
	}
	return err
}

// keep puts a message behind those that have come before it. There is room for all
// receives.
func (c *Conn) keep(d *Descriptor) error {
	s := &c.in
	n := int64(d.Length())
	if n > int64(c.max) {
		return c.breach("a message that is too long")
	}
	i := int(s.came) & (len(s.ring) - 1)
	s.ring[i], s.lengths[i] = d, int32(n)
	s.came++
	return nil
}

// breach returns the error about a peer that breaks the protocol of this package.
func (c *Conn) breach(what string) error {
	return c.vi.nic.refuse("receive", ErrProtocol, "both ends must be a via.Conn", "%s", what)
}
