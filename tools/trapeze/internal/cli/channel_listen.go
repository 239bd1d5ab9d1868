package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// listenReport is the JSON output of channel listen when it ends.
type listenReport struct {
	Clients uint64              `json:"clients"`
	NIC     *telemetry.Channels `json:"nic,omitempty"`
}

type listenFlags struct {
	Device   string `flag:"device" help:"address of the NIC to use"`
	Priority string `flag:"priority" oneof:"high,low" default:"high" help:"high or low, of what is sent back"`
}

func (p *program) channelListen(ctx context.Context, f *listenFlags, _ []string) (err error) {
	nic, err := peer.Open(ctx, f.Device, via.Options{})
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	if to := peer.Hint(f.Device); to != "" {
		p.Note("answering; to ask:\n  trapeze channel ping --device '%s'", to)
	}
	return p.listenChannels(ctx, nic, priorityOf(f.Priority))
}

// listenChannels serves pings until ctx ends, and reports.
func (p *program) listenChannels(ctx context.Context, nic *via.NIC, back channel.Priority) error {
	var mu sync.Mutex // guards r
	var r listenReport
	err := echoChannels(ctx, nic, back, func(c *channel.Channel, err error) {
		mu.Lock()
		defer mu.Unlock()
		r.Clients++
		what := fmt.Sprint(err)
		if errors.Is(err, via.ErrDisconnected) { // as every ping ends
			what = "has disconnected"
		}
		p.Note("%v: %s", c.RemoteAddress().MAC, what)
	})
	if err == nil {
		var last telemetry.Report
		last, err = nic.Report(context.WithoutCancel(ctx)) // ctx has ended
		r.NIC = last.Channels
	}
	if err != nil {
		return fmt.Errorf("channel listen: %w", err)
	}
	return p.Report(r)
}

// echoChannels sends back what comes, with a priority, until ctx ends. ended, if not nil, is
// told how each client's channel has ended.
func echoChannels(ctx context.Context, nic *via.NIC, back channel.Priority, ended func(*channel.Channel, error)) error {
	l, err := channel.Listen(nic, channelName, channel.Options{})
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
			err := echo(ctx, c, back)
			if cerr := c.Close(); cerr != nil {
				err = errors.Join(err, cerr)
			}
			if ended != nil {
				ended(c, err)
			}
		})
	}
}
