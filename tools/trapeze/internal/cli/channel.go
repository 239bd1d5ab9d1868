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
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellping"
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

	Capture *captureReport `json:"capture,omitempty" help:"with --capture"`
}

type channelPingFlags struct {
	channelTarget
	Size  int `flag:"size,s" default:"40" help:"size of a message in bytes, a multiple of 8; 40 is one cell"`
	Count int `flag:"count,c" default:"1000" help:"number of messages"`
}

func (f *channelPingFlags) check() (channel.Priority, error) {
	most := 2*channel.DefaultPageSize - 128 // fewer than cellping.MaxSize
	switch {
	case f.Size < channel.Word || f.Size%channel.Word != 0 || f.Size > most:
		return 0, option.Errorf("--size %d: a multiple of %d up to %d", f.Size, channel.Word, most)
	case f.Count < 1:
		return 0, option.Errorf("--count %d: 1 or more", f.Count)
	}
	return f.channelTarget.check()
}

func (p *program) channelPing(ctx context.Context, f *channelPingFlags, _ []string) error {
	priority, err := f.check()
	if err != nil {
		return err
	}
	echo := func(ctx context.Context, nic *via.NIC) error { return echoChannels(ctx, nic, priority, nil) }
	return f.with(ctx, "channel ping", echo, func(at channelPeer) error {
		c, err := at.dial(ctx, channelName, channel.Options{})
		if err != nil {
			return err
		}
		c.SendPages().Put(0, []byte(strings.Repeat("Trapeze ", f.Size/channel.Word)))
		took, err := bounce(ctx, c, priority, f, at.timeout)
		cerr := c.Close()
		switch {
		case ctx.Err() != nil && len(took) > 0: // what was measured is worth seeing
			err = context.Cause(ctx)
		case err != nil:
			err = explainLost(transfer.Lost(err), "is 'trapeze channel listen' still running there?")
		default:
			err = cerr
		}
		if len(took) == 0 {
			return err
		}
		slices.Sort(took)
		percent := func(n int) float64 { return units.Microseconds(took[(len(took)-1)*n/100]) }
		r := channelReport{c.RemoteAddress().MAC.String(), f.Priority, f.Size, len(took), percent(0), percent(50), percent(99), percent(100), at.capture.finish(&err)}
		defer p.noteCapture(r.Capture)
		return errors.Join(err, p.Printf(r, "--- %s, %s priority, %d bytes ---\n%d rounds, min/p50/p99/max = %.1f/%.1f/%.1f/%.1f us\n",
			r.Peer, r.Priority, r.Bytes, r.Rounds, r.Min, r.P50, r.P99, r.Max))
	})
}

// bounce times round trips, each of which may take so long: what is lost does not come back.
func bounce(ctx context.Context, c *channel.Channel, priority channel.Priority, f *channelPingFlags, timeout time.Duration) (took []time.Duration, err error) {
	for len(took) < f.Count && err == nil {
		waiting, cancel := context.WithTimeout(ctx, timeout)
		var one []time.Duration
		one, err = cellping.Bounce(waiting, c, priority, f.Size, 1)
		cancel()
		took = append(took, one...)
	}
	if err != nil && ctx.Err() == nil && errors.Is(err, via.ErrTimeout) {
		err = shell.Hinted(fmt.Errorf("no answer to message %d: %w", len(took)+1, err), "it may have been lost, channels send nothing again")
	}
	return took, err
}
