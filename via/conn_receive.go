package via

import (
	"context"
	"io"
)

// recvSide is a Conn's state of its receive queue. Receives come, are handed out, released and
// posted again in the order of Conn.recv, round and round. next and failed are guarded by mu;
// held and released belong to the goroutine that receives.
type recvSide struct {
	turns
	next     int   // the receive that comes next
	held     bool  // the application has the message before it
	released int   // receives before these that are to be posted again
	failed   error // nothing more comes: io.EOF if the other side has ended
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
		d, err := s.wait(ctx, c.nic, c.vi.RecvWait)
		if d != nil || err != nil {
			return c.came(d, err)
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
	if err := c.ready(); err != nil || c.in.busy {
		return nil, err
	}
	// For one message: to look for another one behind it may run the NIC.
	return c.came(c.in.mu.DoneHeld(true))
}

// ready is why nothing can be received: messages are held, or no more come.
func (c *Conn) ready() error {
	switch {
	case c.closed.Load():
		return c.closedError()
	case c.in.held:
		return c.nic.Refuse("receive", ErrInvalidState, "call Release first", "what was received last has not been released")
	}
	return c.in.failed
}

// came returns the message of a receive that has completed, or why there is none: nil twice if one
// may come yet.
func (c *Conn) came(d *Descriptor, err error) ([]byte, error) {
	s := &c.in
	switch {
	case c.closed.Load(): // the descriptor may be gone, and Close flushes the other queue
		return nil, c.closedError()
	case err == nil:
		word, is := d.Immediate()
		n := int64(d.Length()) // read once, as the NIC may write to descriptors
		switch {
		case c.reliable && is && word == endMark && n == 0:
			s.failed = io.EOF
			return nil, io.EOF
		case c.reliable && is:
			err = c.breach("a message with immediate data")
		case n > int64(c.max):
			err = c.breach("a message that is too long")
		default:
			at := (c.sends + s.next) * c.stride
			if s.next++; s.next == c.receives {
				s.next = 0
			}
			s.held = true
			return c.buffers[at : at+int(n) : at+c.max], nil
		}
	case err == ErrNotDone:
		return nil, nil
	case !c.ends(err):
		return nil, err
	}
	// What came before the connection broke is received first, so the receive queue has an end
	// of its own.
	s.failed = c.lose(err)
	return nil, s.failed
}

// breach returns the error about a peer that breaks the protocol of this package.
func (c *Conn) breach(what string) error {
	return c.nic.Refuse("receive", ErrProtocol, "both ends must be a via.Conn", "%s", what)
}

// Release gives back the message that was received last. If the
// connection has broken meanwhile, Receive says so behind the messages that had come.
func (c *Conn) Release() error {
	s := &c.in
	switch {
	case !s.held:
		return c.nic.Refuse("release", ErrInvalidState, "", "no message is held")
	case c.closed.Load():
		return c.closedError()
	}
	s.held = false
	if s.released++; s.released < c.lazy {
		return nil
	}
	s.mu.Lock()
	err := c.repost()
	s.mu.Unlock()
	return err
}

// repost posts the receives of all messages that were released, with in.mu held.
func (c *Conn) repost() error {
	s := &c.in
	if c.closed.Load() {
		return c.closedError()
	}
	first := s.next - s.released
	if first < 0 {
		first += c.receives
	}
	batch := c.recv[first : first+s.released]
	for _, d := range batch {
		d.Rearm()
	}
	n, err := s.mu.PostHeld(batch)
	s.released -= n
	return err
}
