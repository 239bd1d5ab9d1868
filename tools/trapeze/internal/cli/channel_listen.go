package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellping"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellstream"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// listenReport is the JSON output of channel listen when it ends.
type listenReport struct {
	Clients uint64 `json:"clients" help:"pings and streams"`
	Streams uint64 `json:"streams"`

	cellstream.Counts // of all streams

	NIC     *telemetry.Channels `json:"nic,omitempty"`
	Capture *captureReport      `json:"capture,omitempty" help:"with --capture"`
}

type listenFlags struct {
	Device   string `flag:"device" help:"address of the NIC to use"`
	Priority string `flag:"priority" default:"high" help:"high or low, of what is sent back"`
	Capture  captureFlag
}

func (p *program) channelListen(ctx context.Context, f *listenFlags, _ []string) (err error) {
	if err := peer.CheckDevice(f.Device); err != nil {
		return err
	}
	back, err := parsePriority(f.Priority)
	if err != nil {
		return err
	}
	taken, err := f.Capture.open(f.Device)
	if err != nil {
		return err
	}
	defer func() { taken.finish(&err) }()
	nic, err := taken.openNIC(ctx, f.Device)
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	if to := peer.Hint(f.Device); to != "" {
		p.Note("answering; to ask:\n  trapeze channel ping --device '%s'\n  trapeze channel stream --device '%s'", to, to)
	}
	return p.listenChannels(ctx, nic, back, taken)
}

// listenChannels serves pings and streams until ctx ends, and reports.
func (p *program) listenChannels(ctx context.Context, nic *via.NIC, back channel.Priority, taken *cellCapture) error {
	var mu sync.Mutex // guards r
	var r listenReport
	ended := func(c *channel.Channel, counts *cellstream.Counts, err error) {
		mu.Lock()
		defer mu.Unlock()
		r.Clients++
		what := fmt.Sprint(err)
		if errors.Is(err, via.ErrDisconnected) { // as every ping ends
			what = "has disconnected"
		}
		if counts != nil {
			r.Streams++
			r.Messages += counts.Messages
			r.Bytes += counts.Bytes
			r.Damaged += counts.Damaged
			r.Drops += counts.Drops
			r.Stops += counts.Stops
			what = fmt.Sprintf("%d messages, %s, %d damaged, %d cells dropped", counts.Messages, units.Amount(counts.Bytes), counts.Damaged, counts.Drops)
			if err != nil {
				what += ": " + err.Error()
			}
		}
		p.Note("%v: %s", c.RemoteAddress().MAC, what)
	}
	// If one of the two cannot go on, the other has to end.
	serving, stop := context.WithCancel(ctx)
	defer stop()
	echoes := make(chan error, 1)
	go func() {
		defer stop()
		echoes <- echoChannels(serving, nic, back, func(c *channel.Channel, err error) { ended(c, nil, err) })
	}()
	err := sinkChannels(serving, nic, ended)
	stop()
	if err = errors.Join(err, <-echoes); err != nil {
		return fmt.Errorf("channel listen: %w", err)
	}
	if r.NIC, err = inspectChannels(ctx, nic); err != nil {
		return fmt.Errorf("channel listen: %w", err)
	}
	r.Capture = taken.finish(&err)
	p.noteCapture(r.Capture)
	return errors.Join(p.Print(r, func(w io.Writer) error { return r.print(w) }), err)
}

func (r *listenReport) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d clients; %d streams: %d messages, %s, %d damaged, %d cells dropped, %d stops\n",
		r.Clients, r.Streams, r.Messages, units.Amount(r.Bytes), r.Damaged, r.Drops, r.Stops)
	return errors.Join(err, printChannels(w, r.NIC))
}

// echoChannels sends back what comes, with a priority, until ctx ends. ended, if not nil, is
// told how each client's channel has ended.
func echoChannels(ctx context.Context, nic *via.NIC, back channel.Priority, ended func(*channel.Channel, error)) error {
	return serveChannels(ctx, nic, channelName, func(c *channel.Channel) {
		err := cellping.Echo(ctx, c, back, -1)
		if cerr := c.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if ended != nil {
			ended(c, err)
		}
	})
}

// sinkChannels takes streams until ctx ends. ended, if not nil, is told what has come of each.
func sinkChannels(ctx context.Context, nic *via.NIC, ended func(*channel.Channel, *cellstream.Counts, error)) error {
	return serveChannels(ctx, nic, cellstream.Name, func(c *channel.Channel) {
		counts, err := cellstream.Receive(ctx, nic, c)
		err = errors.Join(err, c.Close())
		if ended != nil {
			ended(c, &counts, err)
		}
	})
}

// serveChannels has each client at a name served until ctx ends.
func serveChannels(ctx context.Context, nic *via.NIC, name string, serve func(*channel.Channel)) error {
	l, err := channel.Listen(nic, name, channel.Options{})
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
		serving.Go(func() { serve(c) })
	}
}
