package channel

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// Bounce sends a message of size bytes, whole words, back and forth between the channel and an
// Echo at its other end, so many times, one after the other, and returns how long each round
// trip took, from the store until the message was found, also those before an error. It sends from
// word 0 on. It fails with via.ErrInvalidParameter for a size that is not 8 bytes to 79 less than
// the double page or for less than no rounds, with via.ErrProtocol if something else comes back, and as Send and Wait do.
func (c *Channel) Bounce(ctx context.Context, p Priority, size, rounds int) ([]time.Duration, error) {
	if size < Word || size%Word != 0 || size+slack > 2*c.send.size-Word || rounds < 0 {
		return nil, refuse(c.nic, "bounce", via.ErrInvalidParameter, "%d rounds of a message of %d bytes: 0 at least, and whole words, %d to %d", rounds, size, Word, (2*c.send.size-Word-slack)&^(Word-1))
	}
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		if err := ended(ctx, c.nic, "bounce"); err != nil {
			return took, err
		}
		began := time.Now()
		if err := c.Send(p, 0, size/Word); err != nil {
			return took, err
		}
		m, err := c.poll(ctx)
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
		if err := c.Release(m); err != nil {
			return took, err
		}
		if m.Err != nil || m.Length != size {
			return took, refuse(c.nic, "bounce", via.ErrProtocol, "%d bytes came back of %d: %w", m.Length, size, orNone(m.Err))
		}
	}
	return took, nil
}

// Echo sends back what comes, at a priority, so many times, or for ever if rounds is negative,
// until ctx or the connection ends. A message that is not whole is via.ErrProtocol. It copies what
// comes to word 0 of SendPages.
func (c *Channel) Echo(ctx context.Context, p Priority, rounds int) error {
	buffer := make([]byte, 2*c.recv.size)
	for ; rounds != 0; rounds-- {
		if err := ended(ctx, c.nic, "echo"); err != nil {
			return err
		}
		m, err := c.poll(ctx)
		if err != nil {
			return err
		}
		if m.Err != nil {
			return refuse(c.nic, "echo", via.ErrProtocol, "a message of %d bytes: %w", m.Length, m.Err)
		}
		n := c.Read(m, buffer)
		if err := c.Release(m); err != nil {
			return err
		}
		// The one before has left: it has come back to whoever sent this.
		if err := c.Send(p, 0, c.send.Put(0, buffer[:n])); err != nil {
			return err
		}
	}
	return nil
}

// looks is how often poll looks before it waits with Wait, which may sleep.
const looks = 1 << 16

// poll is Wait for whoever counts microseconds.
func (c *Channel) poll(ctx context.Context) (PDU, error) {
	for range looks {
		if m, err := c.Poll(); err != ErrEmpty {
			return m, err
		}
	}
	return c.Wait(ctx)
}
