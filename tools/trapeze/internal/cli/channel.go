package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/via"
)

// channelName is where 'channel listen' answers.
const channelName = "trapeze-channel"

// mostParticipants bounds a barrier: as many threads poll.
const mostParticipants = 256

// channelReport is what channel ping and channel barrier print with --json. Times are of round
// trips, or of rounds.
type channelReport struct {
	Peer         string  `json:"peer,omitempty"`
	Priority     string  `json:"priority,omitempty"`
	Bytes        int     `json:"bytes,omitempty"`
	Participants int     `json:"participants,omitempty"`
	Rounds       int     `json:"rounds"`
	Min          float64 `json:"min_us"`
	P50          float64 `json:"p50_us"`
	P99          float64 `json:"p99_us"`
	Max          float64 `json:"max_us"`
}

// listenReport is what channel listen prints with --json when it ends.
type listenReport struct {
	Clients uint64 `json:"clients"`
}

func (p *program) channel() *cobra.Command {
	c := &cobra.Command{
		Use:   "channel",
		Short: "Use MINI's channels: one store sends, urgent cells go first",
		Long: `Use channels, where a message is cut into cells of 48 bytes and leaves with one store.
Those of high priority go between any two cells of low priority.

JSON keys: those of 'trapeze help --json'.`,
		Example: `  trapeze channel ping --size 40 --priority high
  trapeze channel barrier --participants 8`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.channelPing(), p.channelListen(), p.channelBarrier())
	return c
}

type channelPingFlags struct {
	device, to, priority string
	size, count          int
	timeout              time.Duration
}

func (p *program) channelPing() *cobra.Command {
	var f channelPingFlags
	c := &cobra.Command{
		Use:   "ping",
		Short: "Time round trips over a pair of channels",
		Long: `Send messages to a 'trapeze channel listen' on the same wire, one after the other, and time
their return. Without --device both ends are emulated in this process.

JSON keys: peer (MAC), priority, bytes, rounds, min_us, p50_us, p99_us, max_us.`,
		Example: `  trapeze channel ping --size 40
  trapeze channel ping --device 'emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000' --priority low`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return p.runChannelPing(ctx, f) }),
	}
	c.Flags().StringVar(&f.device, "device", "", "address of the NIC to use (default two in this process)")
	c.Flags().StringVar(&f.to, "to", "", "MAC address of the NIC to ping (default whoever listens on the wire)")
	c.Flags().StringVar(&f.priority, "priority", "high", "high or low")
	c.Flags().IntVarP(&f.size, "size", "s", 40, "size of a message in bytes, a multiple of 8; 40 is one cell")
	c.Flags().IntVarP(&f.count, "count", "c", 1000, "number of messages")
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to try to reach the other end")
	return c
}

func (f *channelPingFlags) check() (channel.Priority, error) {
	most := 2*channel.DefaultPageSize - 128 // what Bounce takes: the trailer needs room too
	switch {
	case f.size < channel.Word || f.size%channel.Word != 0 || f.size > most:
		return 0, option.Errorf("--size %d: a multiple of %d up to %d", f.size, channel.Word, most)
	case f.count < 1:
		return 0, option.Errorf("--count %d: 1 or more", f.count)
	case f.timeout <= 0:
		return 0, option.Errorf("--timeout %v: it must be more than nothing", f.timeout)
	}
	if f.device != "" {
		if err := checkPeerAddress(f.device); err != nil {
			return 0, err
		}
	}
	switch f.priority {
	case "high":
		return channel.High, nil
	case "low":
		return channel.Low, nil
	}
	return 0, option.Errorf("--priority %q: high or low", f.priority)
}

func (p *program) runChannelPing(ctx context.Context, f channelPingFlags) (err error) {
	priority, err := f.check()
	if err != nil {
		return err
	}
	mac := descriptors.Broadcast
	if f.to != "" {
		if mac, err = parseMAC(f.to); err != nil {
			return err
		}
	}
	var nic *via.NIC
	if f.device != "" {
		if nic, err = open(ctx, f.device); err != nil {
			return err
		}
		defer closing(nic, &err)
		return p.channelPingPeer(ctx, nic, mac, priority, f)
	}
	nic, other, err := openPair(ctx)
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	defer closing(other, &err)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serveChannels(serving, other, nil) }()
	err = p.channelPingPeer(ctx, nic, other.Query().Address, priority, f)
	stop()
	return errors.Join(err, <-served)
}

func (p *program) channelPingPeer(ctx context.Context, nic *via.NIC, mac via.MAC, priority channel.Priority, f channelPingFlags) error {
	dialling, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	c, err := channel.Dial(dialling, nic, via.Address{MAC: mac, Discriminator: []byte(channelName)}, nil)
	if err != nil {
		return fmt.Errorf("channel ping: %w", explainDial(err, f.timeout, "trapeze channel listen"))
	}
	took, err := c.Bounce(ctx, priority, f.size, f.count)
	if err := errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("channel ping: %w", err)
	}
	r := describeRounds(took)
	r.Peer, r.Priority, r.Bytes = c.Remote().MAC.String(), f.priority, f.size
	return p.printChannel(r, fmt.Sprintf("%s, %s priority, %d bytes", r.Peer, r.Priority, r.Bytes))
}

// describeRounds has the times of a report; there are some.
func describeRounds(took []time.Duration) channelReport {
	slices.Sort(took)
	at := func(percent int) float64 { return microseconds(took[(len(took)-1)*percent/100]) }
	return channelReport{Rounds: len(took), Min: at(0), P50: at(50), P99: at(99), Max: at(100)}
}

func (p *program) printChannel(r channelReport, what string) error {
	if p.JSON {
		return p.PrintJSON(r)
	}
	_, err := fmt.Fprintf(p.Stdout, "--- %s ---\n%d rounds, min/p50/p99/max = %.1f/%.1f/%.1f/%.1f us\n", what, r.Rounds, r.Min, r.P50, r.P99, r.Max)
	return err
}

func (p *program) channelListen() *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   "listen",
		Short: "Answer 'channel ping' of others",
		Long: `Send back what comes over channels, until it is interrupted, and then end with exit code 0.

JSON keys: clients.`,
		Example: `  trapeze channel listen --device 'emu:?wire=udp://127.0.0.1:9000'`,
		Args:    cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) (err error) {
			if err := checkPeerAddress(device); err != nil {
				return err
			}
			nic, err := open(ctx, device)
			if err != nil {
				return err
			}
			defer closing(nic, &err)
			if to := sendHint(device); to != "" {
				p.Note("answering; to ask:\n  trapeze channel ping --device '%s'", to)
			}
			var clients atomic.Uint64
			err = serveChannels(ctx, nic, func(c *channel.Channel, err error) {
				clients.Add(1)
				p.Note("%v: %v", c.Remote().MAC, err)
			})
			if err == nil && p.JSON {
				err = p.PrintJSON(listenReport{Clients: clients.Load()})
			}
			return err
		}),
	}
	c.Flags().StringVar(&device, "device", "", "address of the NIC to use")
	return c
}

// serveChannels sends back what comes until ctx ends. ended, if not nil, is told how each
// client's channel has ended.
func serveChannels(ctx context.Context, nic *via.NIC, ended func(*channel.Channel, error)) error {
	l, err := channel.Listen(nic, channelName, nil)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = nil // that was the order
			}
			return errors.Join(err, l.Close())
		}
		serving.Go(func() {
			err := c.Echo(ctx, channel.High, -1)
			if cerr := c.Close(); cerr != nil {
				err = errors.Join(err, cerr)
			}
			if ended != nil {
				ended(c, err)
			}
		})
	}
}

func (p *program) channelBarrier() *cobra.Command {
	var participants, rounds int
	c := &cobra.Command{
		Use:   "barrier",
		Short: "Time a barrier over channels",
		Long: `Have participants on one emulated NIC wait for each other, round by round, by a coordinator
on another: one cell in and one out for each. All of it is in this process.

JSON keys: participants, rounds, min_us, p50_us, p99_us, max_us (of a round).`,
		Example: `  trapeze channel barrier --participants 8`,
		Args:    cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error {
			switch {
			case participants < 1 || participants > mostParticipants:
				return option.Errorf("--participants %d: 1 to %d", participants, mostParticipants)
			case rounds < 1:
				return option.Errorf("--rounds %d: 1 or more", rounds)
			}
			took, err := barrier(ctx, participants, rounds)
			if err != nil {
				return fmt.Errorf("channel barrier: %w", err)
			}
			r := describeRounds(took)
			r.Participants = participants
			return p.printChannel(r, fmt.Sprintf("barrier of %d", participants))
		}),
	}
	c.Flags().IntVar(&participants, "participants", 4, "number of participants")
	c.Flags().IntVar(&rounds, "rounds", 1000, "number of rounds")
	return c
}

// barrier times the rounds of a barrier.
func barrier(ctx context.Context, participants, rounds int) (took []time.Duration, err error) {
	a, b, err := openPair(ctx)
	if err != nil {
		return nil, err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	pages, err := channel.NewPages(ctx, b, channel.DefaultPageSize, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	l, err := channel.Listen(b, channelName, &channel.Options{Send: pages})
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
		c, err := channel.Dial(ctx, a, l.Address(), nil)
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
	for range rounds {
		began := time.Now()
		if err := coordinator.Run(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			cancel(err)
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
