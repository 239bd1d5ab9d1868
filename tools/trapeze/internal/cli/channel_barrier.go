package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/via"
)

// mostParticipants bounds a barrier: as many threads poll.
const mostParticipants = 256

type barrierFlags struct {
	Participants int    `flag:"participants" default:"4" help:"number of participants"`
	Rounds       int    `flag:"rounds" default:"1000" help:"number of rounds"`
	Priority     string `flag:"priority" default:"high" help:"high or low"`
}

func (p *program) channelBarrier(ctx context.Context, f *barrierFlags, _ []string) error {
	switch {
	case f.Participants < 1 || f.Participants > mostParticipants:
		return option.Errorf("--participants %d: 1 to %d", f.Participants, mostParticipants)
	case f.Rounds < 1:
		return option.Errorf("--rounds %d: 1 or more", f.Rounds)
	}
	of, err := parsePriority(f.Priority)
	if err != nil {
		return err
	}
	took, err := barrier(ctx, of, f.Participants, f.Rounds)
	if err != nil {
		err = fmt.Errorf("channel barrier: %w", err)
	}
	if len(took) == 0 {
		return err
	}
	r := describeRounds(took)
	r.Priority, r.Participants = f.Priority, f.Participants
	return errors.Join(err, p.printChannel(r, fmt.Sprintf("barrier of %d, %s priority", f.Participants, f.Priority)))
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
