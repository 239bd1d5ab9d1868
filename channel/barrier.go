package channel

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// Barrier is the coordinator's end of a barrier, with a channel to each participant. Each round
// takes one cell from each participant and one back by multicast, as in MINI.
type Barrier struct {
	// Priority of the release, High unless it is set before Run.
	Priority Priority

	channels []*Channel
	round    uint64
}

// NewBarrier makes a barrier of the channels to its participants. It fails with
// via.ErrInvalidParameter if they do not share their sending pages (Options.Send).
func NewBarrier(channels ...*Channel) (*Barrier, error) {
	if err := samePages("barrier", channels); err != nil {
		return nil, err
	}
	return &Barrier{channels: channels}, nil
}

// Run waits until each participant has entered the barrier, and lets them all go on. It fails
// with the error of ctx, as Channel.Wait does, and with via.ErrProtocol if a participant is in
// another round.
func (b *Barrier) Run(ctx context.Context) error {
	for i, c := range b.channels {
		if err := ended(ctx, c.nic, "barrier"); err != nil {
			return err
		}
		if err := c.awaitRound(ctx, b.round); err != nil {
			return fmt.Errorf("participant %d: %w", i, err)
		}
	}
	if len(b.channels) == 0 {
		b.round++
		return nil
	}
	stop := b.channels[0].send.putRound(b.round)
	for left := b.channels; len(left) > 0; {
		n, err := Multicast(b.Priority, 0, stop, left...)
		if err != nil && err != via.ErrQueueFull {
			return err
		}
		if left = left[n:]; len(left) > 0 {
			if err := ended(ctx, left[0].nic, "barrier"); err != nil {
				return err
			}
			left[0].nic.Poll()
		}
	}
	// The cells are read from the pages until they have left.
	for _, c := range b.channels {
		if err := c.Flush(ctx); err != nil {
			return err
		}
	}
	b.round++
	return nil
}

// Participant is a participant's end of a barrier.
type Participant struct {
	// Priority of the entry, High unless it is set before Enter.
	Priority Priority

	channel *Channel
	round   uint64
}

// NewParticipant makes a participant of its channel to the coordinator.
func NewParticipant(c *Channel) *Participant { return &Participant{channel: c} }

// Enter enters the barrier and waits for all other participants. It fails as Run does.
func (p *Participant) Enter(ctx context.Context) error {
	c := p.channel
	if err := ended(ctx, c.nic, "barrier"); err != nil {
		return err
	}
	if err := c.Send(p.Priority, 0, c.send.putRound(p.round)); err != nil {
		return err
	}
	if err := c.awaitRound(ctx, p.round); err != nil {
		return err
	}
	p.round++
	return nil
}

// putRound writes the message of a round to the start of the pages.
func (p *Pages) putRound(round uint64) (stop int) {
	var b [Word]byte
	binary.LittleEndian.PutUint64(b[:], round)
	return p.Put(0, b[:])
}

// awaitRound waits for the message of a round.
func (c *Channel) awaitRound(ctx context.Context, round uint64) error {
	m, err := c.Wait(ctx)
	if err != nil {
		return err
	}
	var b [Word]byte
	n := c.Read(m, b[:])
	if err := c.Release(m); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(b[:]); m.Err != nil || n < Word || got != round {
		cause := error(via.ErrProtocol)
		if m.Err != nil {
			cause = fmt.Errorf("%w: %w", cause, m.Err)
		}
		return refuse(c.nic, "barrier", cause, "round %d: a message of round %d and %d bytes", round, got, m.Length)
	}
	return nil
}
