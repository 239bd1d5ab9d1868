package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/via"
)

// mostParticipants bounds a barrier: as many threads poll.
const mostParticipants = 256

func (p *program) channelBarrier() *cobra.Command {
	var participants, rounds int
	var priority string
	c := &cobra.Command{
		Use:   "barrier",
		Short: "Time a barrier over channels",
		Long: `Have participants on one emulated NIC wait for each other, round by round, by a coordinator
on another: one cell in and one out for each, all of them of --priority. All of it is in
this process. If it is interrupted it shows the rounds until then.

` + keys.Of(channelReport{}),
		Example: `  trapeze channel barrier --participants 8
  trapeze channel barrier --priority low --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error {
			switch {
			case participants < 1 || participants > mostParticipants:
				return option.Errorf("--participants %d: 1 to %d", participants, mostParticipants)
			case rounds < 1:
				return option.Errorf("--rounds %d: 1 or more", rounds)
			}
			of, err := parsePriority(priority)
			if err != nil {
				return err
			}
			took, err := barrier(ctx, of, participants, rounds)
			if err != nil {
				err = fmt.Errorf("channel barrier: %w", err)
			}
			if len(took) == 0 {
				return err
			}
			r := describeRounds(took)
			r.Priority, r.Participants = priority, participants
			return errors.Join(err, p.printChannel(r, fmt.Sprintf("barrier of %d, %s priority", participants, priority)))
		}),
	}
	c.Flags().IntVar(&participants, "participants", 4, "number of participants")
	c.Flags().IntVar(&rounds, "rounds", 1000, "number of rounds")
	c.Flags().StringVar(&priority, "priority", "high", "high or low")
	return c
}

// barrier times the rounds of a barrier, also those before an error.
func barrier(ctx context.Context, priority channel.Priority, participants, rounds int) (took []time.Duration, err error) {
	a, b, err := openPair(ctx, via.Options{})
	if err != nil {
		return nil, err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	pages, err := channel.NewPages(ctx, b, channel.DefaultPageSize, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	l, err := channel.Listen(b, channelName, channel.Options{Send: pages})
	if err != nil {
		return nil, err
	}
	// Who cannot go on ends the others' waiting.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var members []*channel.Channel
	var entering sync.WaitGroup
	defer entering.Wait()
	for range participants {
		c, err := channel.Dial(ctx, a, l.Address().String(), channel.Options{})
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		m, err := l.Accept(ctx)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		members = append(members, m)
		entering.Go(func() {
			p := channel.NewParticipant(c)
			p.Priority = priority
			for range rounds {
				if err := p.Enter(ctx); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	coordinator, err := channel.NewBarrier(members...)
	if err != nil {
		return nil, err
	}
	coordinator.Priority = priority
	for range rounds {
		began := time.Now()
		if err := coordinator.Run(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			cancel(err)
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
