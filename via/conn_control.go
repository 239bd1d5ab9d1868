package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Who receives tells who sends how many receives it has posted. The immediate data of
// each message of a reliable Conn holds
//
//	bits 0 to 14   receives for messages that were posted since the last one said so
//	bit 15         zero
//	bits 16 to 29  grants that the sender has taken note of, modulo 2^14
//	bits 30 and 31 kind
//
// A side that has nothing to send sends a grant, a message without bytes: once the
// receives that the other side does not know of are half of all, or when it has to
// wait for room itself. Two grants at most go unnoticed, and one end: for these each
// side has receives that it never grants.
const (
	kindMask    = 3 << 30
	kindMessage = 1 << 30
	kindGrant   = 2 << 30
	kindEnd     = 3 << 30

	reservedBit  = 1 << 15
	noticedShift = 16
	noticedMask  = 1<<14 - 1
	grantMask    = 1<<15 - 1

	mostGrants   = 2
	controlDepth = mostGrants + 1
)

// word is the immediate data of the next message. It is called with out.mu held until the message
// is posted: messages go out in the order of their words, which count on those before.
func (c *Conn) word(kind uint32) uint32 {
	n := datasheet.LoadIndex(&c.in.reposted) - c.out.granted
	if n != 0 {
		datasheet.StoreIndex(&c.out.granted, c.out.granted+n)
	}
	return kind | datasheet.LoadIndex(&c.in.noticed)&noticedMask<<noticedShift | n
}

// unnoticed is the number of grants that the other side has not taken note of, as far as it has
// said.
func (c *Conn) unnoticed(said uint32) uint32 {
	return (datasheet.LoadIndex(&c.out.grants) - said) & noticedMask
}

// grant tells the other side of the receives that it does not know of, if these are
// least or more together with those that are yet to be posted again.
func (c *Conn) grant(least uint32) error {
	if datasheet.LoadIndex(&c.in.released)-datasheet.LoadIndex(&c.out.granted) < least || c.unnoticed(datasheet.LoadIndex(&c.in.said)) >= mostGrants {
		return nil
	}
	if err := c.repost(); err != nil {
		return err
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	err := c.lookForControl()
	if c.controlsOut() && err == nil { // acknowledgements are late
		ctx, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		err = c.awaitControl(ctx)
	}
	if err != nil {
		return err
	}
	return c.postControl(kindGrant)
}

// controlsOut reports whether all descriptors for messages without bytes are out.
func (c *Conn) controlsOut() bool {
	return c.out.controlPosted-c.out.controlCompleted == uint32(len(c.control))
}

// lookForControl takes note of sends that have completed if all are out.
func (c *Conn) lookForControl() error {
	if !c.controlsOut() {
		return nil
	}
	return c.lookOutLocked()
}

// awaitControl waits until one of them is not, with out.mu held.
func (c *Conn) awaitControl(ctx context.Context) error {
	for {
		if err := c.lookForControl(); err != nil || !c.controlsOut() {
			return err
		}
		if err := c.out.wait(ctx, c); err != nil {
			return err
		}
	}
}

// CloseSend ends the sending: when the other side has received all messages, it
// gets io.EOF. Receiving goes on.
func (c *Conn) CloseSend(ctx context.Context) error {
	if c.window == 0 {
		return c.vi.nic.refuse("end sending", ErrNotSupported, "", "an unreliable connection has no end")
	}
	if err := c.lockSending(ctx); err != nil {
		return err
	}
	defer func() { <-c.sending }()
	return c.end(ctx)
}

// end tells the other side that no message follows.
func (c *Conn) end(ctx context.Context) error {
	if c.window == 0 {
		return nil
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if err := c.awaitControl(ctx); err != nil {
		return err
	}
	return c.postControl(kindEnd)
}

// postControl sends a message without bytes, for which there is a descriptor, with
// out.mu held.
func (c *Conn) postControl(kind uint32) error {
	s := &c.out
	if err := c.broken(); err != nil {
		return err
	}
	// Others may have been here before.
	if kind == kindEnd && s.ended.Load() || kind == kindGrant && (datasheet.LoadIndex(&c.in.reposted) == s.granted || c.unnoticed(datasheet.LoadIndex(&c.in.said)) >= mostGrants) {
		return nil
	}
	if kind == kindEnd {
		s.ended.Store(true)
	} else {
		datasheet.StoreIndex(&s.grants, s.grants+1)
	}
	at := s.controlPosted % uint32(len(c.control))
	d := c.control[at]
	s.controlPosted++
	d.Prepare()
	d.SetImmediate(c.word(kind))
	if _, err := s.mu.PostHeld(c.control[at : at+1]); err != nil {
		return c.lose(err)
	}
	return nil
}
