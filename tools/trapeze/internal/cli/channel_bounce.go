package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// maxBounced is the size in bytes of the largest message that bounce sends. It leaves room in the double page for
// padding, trailer, CRC and clock (55 bytes), and for one word, in whole words.
const maxBounced = 2*channel.DefaultPageSize - 80

// looks is the number of polls before Wait, which may sleep.
const looks = 1 << 16

// bounce sends a message of size bytes, whole words, from word 0 on to an echo at the other end of c, and times its
// return.
func bounce(ctx context.Context, c *channel.Channel, p channel.Priority, size int) (time.Duration, error) {
	began := time.Now()
	if err := c.Send(p, 0, size/channel.Word); err != nil {
		return 0, err
	}
	m, err := nextMessage(ctx, c)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	switch err := c.Release(m); {
	case err != nil:
		return 0, err
	case m.Err != nil:
		return 0, fmt.Errorf("bounce: %w: %w", via.ErrProtocol, m.Err)
	case m.Length != size:
		return 0, fmt.Errorf("bounce: %w: %d bytes came back of %d", via.ErrProtocol, m.Length, size)
	}
	return took, nil
}

// echo sends back all messages until ctx or the connection ends. A damaged one is via.ErrProtocol.
func echo(ctx context.Context, c *channel.Channel, p channel.Priority) error {
	buffer := make([]byte, 2*c.RecvPages().PageSize())
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("echo: %w", err)
		}
		m, err := nextMessage(ctx, c)
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
}

// nextMessage polls for the next message, and waits when none comes for long.
func nextMessage(ctx context.Context, c *channel.Channel) (channel.PDU, error) {
	for range looks {
		if m, err := c.Poll(); err != via.ErrNotDone {
			return m, err
		}
	}
	return c.Wait(ctx)
}
