// Package cellping times round trips over a pair of channels.
package cellping

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// MaxSize is the size in bytes of the largest message of Bounce on pages of channel.DefaultPageSize. It
// leaves room in the double page for padding, trailer, CRC and clock, and for one word.
const MaxSize = 2*channel.DefaultPageSize - slack

// slack is the room in bytes behind a message: 55 of padding and trailer, CRC and clock, and one word,
// in whole words.
const slack = 80

// looks is the number of polls before Wait, which may sleep.
const looks = 1 << 16

// Bounce sends a message of size bytes, whole words, to an Echo at the other end of c and back, so
// many times. It returns the time of each round trip, also of those before an error. It sends from
// word 0 on. It fails with via.ErrInvalidParameter for a size that is not 8 to MaxSize or fewer than no
// rounds, with via.ErrProtocol if another message comes back, and as Send and Wait do.
func Bounce(ctx context.Context, c *channel.Channel, p channel.Priority, size, rounds int) ([]time.Duration, error) {
	if most := 2*c.SendPages().PageSize() - slack; size < channel.Word || size%channel.Word != 0 || size > most || rounds < 0 {
		return nil, fmt.Errorf("bounce: %w: %d rounds of a message of %d bytes: 0 at least, and whole words, %d to %d", via.ErrInvalidParameter, rounds, size, channel.Word, most)
	}
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		if err := ctx.Err(); err != nil {
			return took, fmt.Errorf("bounce: %w", err)
		}
		began := time.Now()
		if err := c.Send(p, 0, size/channel.Word); err != nil {
			return took, err
		}
		m, err := next(ctx, c)
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
		if err := c.Release(m); err != nil {
			return took, err
		}
		if m.Err != nil {
			return took, fmt.Errorf("bounce: %w: %w", via.ErrProtocol, m.Err)
		}
		if m.Length != size {
			return took, fmt.Errorf("bounce: %w: %d bytes came back of %d", via.ErrProtocol, m.Length, size)
		}
	}
	return took, nil
}

// Echo sends back so many messages, or all if rounds is negative, until ctx or the connection ends. A
// damaged message is via.ErrProtocol. Echo copies each message to word 0 of SendPages.
func Echo(ctx context.Context, c *channel.Channel, p channel.Priority, rounds int) error {
	buffer := make([]byte, 2*c.RecvPages().PageSize())
	for ; rounds != 0; rounds-- {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("echo: %w", err)
		}
		m, err := next(ctx, c)
		if err != nil {
			return err
		}
		if m.Err != nil {
			return fmt.Errorf("echo: %w: a message of %d bytes: %w", via.ErrProtocol, m.Length, m.Err)
		}
		n := c.Read(m, buffer)
		if err := c.Release(m); err != nil {
			return err
		}
		// The reply before has left the pages: it came back to the sender of this message.
		if err := c.Send(p, 0, c.SendPages().Put(0, buffer[:n])); err != nil {
			return err
		}
	}
	return nil
}

// next polls for the next message, and waits when none comes for long.
func next(ctx context.Context, c *channel.Channel) (channel.PDU, error) {
	for range looks {
		if m, err := c.Poll(); err != via.ErrNotDone {
			return m, err
		}
	}
	return c.Wait(ctx)
}
