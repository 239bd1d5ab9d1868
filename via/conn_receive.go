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
	held     int   // messages before it that the application has
	released int   // receives before these that are to be posted again
	failed   error // nothing more comes: io.EOF if the other side has ended
	look     [16]*Descriptor
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

// ReceiveBatch is TryReceive for several messages: it puts those that have come into
// into, as many as it has room for, and returns how many these are. Release gives all
// of them back with one doorbell.
func (c *Conn) ReceiveBatch(into [][]byte) (int, error) {
	s := &c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.ready(); err != nil || s.busy {
		return 0, err
	}
	n := 0
	for n < len(into) {
		look := s.look[:min(len(into)-n, len(s.look))]
		came, err := s.mu.DoneBatchHeld(look)
		for _, d := range look[:max(came, 1)] { // if there is none, err says why
			var m []byte
			if m, err = c.came(d, err); m == nil {
				if n > 0 { // what ends the connection is for the next call
					err = nil
				}
				return n, err
			}
			into[n] = m
			n++
		}
	}
	return n, nil
}

// ready is why nothing can be received: messages are held, or no more come.
func (c *Conn) ready() error {
	switch {
	case c.closed.Load():
		return c.closedError()
	case c.in.held != 0:
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
			s.held++
			return c.buffers[at : at+int(n) : at+c.max], nil
		}
	case err == ErrNotDone || err == ErrQueueEmpty && s.held != 0: // a batch has taken all receives
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

// Release gives back what was received last: a message, or a batch of them. If the
// connection has broken meanwhile, Receive says so behind the messages that had come.
func (c *Conn) Release() error {
	s := &c.in
	switch {
	case s.held == 0:
		return c.nic.Refuse("release", ErrInvalidState, "", "no message is held")
	case c.closed.Load():
		return c.closedError()
	}
	s.released += s.held
	s.held = 0
	if s.released < c.lazy {
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
