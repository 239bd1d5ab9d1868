package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// channelName is where 'channel listen' answers.
const channelName = "trapeze-channel"

// channelReport is the JSON output of channel ping. Times are of round trips.
type channelReport struct {
	Peer     string  `json:"peer" help:"MAC"`
	Priority string  `json:"priority"`
	Bytes    int     `json:"bytes"`
	Rounds   int     `json:"rounds"`
	Min      float64 `json:"min_us"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Max      float64 `json:"max_us"`
}

type channelPingFlags struct {
	Device   string        `flag:"device" help:"address of the NIC to use (default two in this process)"`
	To       string        `flag:"to" help:"MAC address of the NIC to reach (default the NIC that listens on the wire)"`
	Priority string        `flag:"priority" oneof:"high,low" default:"high" help:"high or low"`
	Timeout  time.Duration `flag:"timeout" default:"10s" range:"1ns.." help:"how long to try to reach the other end, and how long that may say nothing"`
	Size     int           `flag:"size,s" default:"40" help:"size of a message in bytes, a multiple of 8; 40 is one cell"`
	Count    int           `flag:"count,c" default:"1000" range:"1.." help:"number of messages"`
}

func (f *channelPingFlags) check() error {
	if f.Size < channel.Word || f.Size%channel.Word != 0 || f.Size > maxBounced {
		return option.Errorf("--size %d: a multiple of %d up to %d", f.Size, channel.Word, maxBounced)
	}
	return nil
}

// priorityOf is the value of --priority.
func priorityOf(word string) channel.Priority {
	if word == "low" {
		return channel.Low
	}
	return channel.High
}

func (p *program) channelPing(ctx context.Context, f *channelPingFlags, _ []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	priority := priorityOf(f.Priority)
	to, err := peer.Target(f.To)
	if err != nil {
		return err
	}
	if f.Device != "" {
		nic, err := peer.Open(ctx, f.Device, via.Options{})
		if err != nil {
			return err
		}
		defer closing(nic, &err)
		return p.pingChannel(ctx, nic, to, priority, f)
	}
	nic, other, err := openPair(ctx, via.Options{})
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	defer closing(other, &err)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the ping is done
	served := make(chan error, 1)
	go func() { served <- echoChannels(serving, other, priority, nil) }()
	err = p.pingChannel(ctx, nic, other.Query().Address, priority, f)
	stop()
	return errors.Join(err, <-served)
}

// pingChannel times round trips to the listener of a NIC, and shows what was measured, also before an error.
func (p *program) pingChannel(ctx context.Context, nic *via.NIC, to via.MAC, priority channel.Priority, f *channelPingFlags) error {
	dialling, cancel := context.WithTimeout(ctx, f.Timeout)
	c, err := channel.Dial(dialling, nic, via.Address{MAC: to, Discriminator: channelName}.String(), channel.Options{})
	cancel()
	if err != nil {
		return fmt.Errorf("channel ping: %w", explainDial(err, f.Timeout, "trapeze channel listen"))
	}
	c.SendPages().Put(0, []byte(strings.Repeat("Trapeze ", f.Size/channel.Word)))
	took, err := bounceAll(ctx, c, priority, f)
	cerr := c.Close()
	switch {
	case ctx.Err() != nil && len(took) > 0: // what was measured is worth seeing
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("channel ping: %w", explainLost(transfer.Lost(err), "is 'trapeze channel listen' still running there?"))
	default:
		err = cerr
	}
	if len(took) == 0 {
		return err
	}
	slices.Sort(took)
	percent := func(n int) float64 { return units.Microseconds(took[(len(took)-1)*n/100]) }
	r := channelReport{c.RemoteAddress().MAC.String(), f.Priority, f.Size, len(took), percent(0), percent(50), percent(99), percent(100)}
	return errors.Join(err, p.Report(r))
}

// bounceAll times round trips, each of which may take so long: what is lost does not come back.
func bounceAll(ctx context.Context, c *channel.Channel, priority channel.Priority, f *channelPingFlags) (took []time.Duration, err error) {
	for len(took) < f.Count && err == nil {
		waiting, cancel := context.WithTimeout(ctx, f.Timeout)
		var one time.Duration
		if one, err = bounce(waiting, c, priority, f.Size); err == nil {
			took = append(took, one)
		}
		cancel()
	}
	if err != nil && ctx.Err() == nil && errors.Is(err, via.ErrTimeout) {
		err = shell.Hinted(fmt.Errorf("no answer to message %d: %w", len(took)+1, err), "it may have been lost, channels send nothing again")
	}
	return took, err
}
