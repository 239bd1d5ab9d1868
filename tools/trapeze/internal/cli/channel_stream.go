package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellstream"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// streamReport is the JSON output of channel stream.
type streamReport struct {
	Peer     string `json:"peer" help:"MAC"`
	Priority string `json:"priority"`
	Size     int    `json:"message_bytes"`
	cellstream.Totals

	NIC     *telemetry.Channels `json:"nic,omitempty" help:"of the sending one, unless that has failed"`
	Capture *captureReport      `json:"capture,omitempty" help:"with --capture"`
}

type streamFlags struct {
	channelTarget `override:"priority" default:"low"`
	Size          option.Bytes  `flag:"size,s" default:"4K" help:"size of a message, a multiple of 8"`
	Bytes         option.Bytes  `flag:"bytes" help:"end after so many bytes, rounded up to whole messages"`
	Rate          option.Bytes  `flag:"rate" default:"4G" help:"bytes a second that are sent at most"`
	Count         uint64        `flag:"count,c" help:"end after so many messages"`
	Duration      time.Duration `flag:"duration" default:"5s" help:"end after this time; 0 is until interrupted (no limit by default with --bytes or --count)"`
	Given         cmdtable.Given
}

// options checks the flags.
func (f *streamFlags) options() (o cellstream.Options, err error) {
	if o.Priority, err = f.check(); err != nil {
		return o, err
	}
	switch {
	case f.Size < cellstream.MinSize || f.Size%channel.Word != 0 || f.Size > cellstream.MaxSize:
		return o, option.Errorf("--size %d: a multiple of %d up to %d", f.Size, channel.Word, cellstream.MaxSize)
	case f.Duration < 0:
		return o, option.Errorf("--duration %v: it must not be negative", f.Duration)
	case f.Rate < cellstream.MinSize:
		return o, option.Errorf("--rate %d: %d or more", f.Rate, cellstream.MinSize)
	}
	o.Size, o.Bytes, o.Messages, o.Duration = int(f.Size), uint64(f.Bytes), f.Count, f.Duration
	if f.limited() && !f.Given("duration") {
		o.Duration = 0
	}
	o.Rate, o.Timeout = float64(f.Rate), f.Timeout
	return o, nil
}

// limited reports whether something other than time ends the stream.
func (f *streamFlags) limited() bool { return f.Bytes > 0 || f.Count > 0 }

func (p *program) channelStream(ctx context.Context, f *streamFlags, _ []string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	sink := func(ctx context.Context, nic *via.NIC) error { return sinkChannels(ctx, nic, nil) }
	return f.with(ctx, "channel stream", sink, func(at channelPeer) error {
		c, err := at.dial(ctx, cellstream.Name, channel.Options{PageSize: cellstream.PageSize})
		if err != nil {
			return err
		}
		total := int64(-1)
		if f.limited() {
			total = int64(max(f.Bytes, option.Bytes(f.Count)*f.Size))
		}
		meter := p.Meter("streaming", total)
		o.Progress = meter.Add
		t, err := cellstream.Send(ctx, c, o)
		meter.Stop()
		// A NIC that does not answer any more has been found out about.
		nic, _ := inspectChannels(ctx, at.nic)
		// Of a channel that has failed it is no news that it does not end in order.
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		r := streamReport{c.RemoteAddress().MAC.String(), f.Priority, o.Size, t, nic, at.capture.finish(&err)}
		err = errors.Join(p.Print(r, r.print), explainLost(err, "is 'trapeze channel listen' still running there?"))
		defer p.noteCapture(r.Capture)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil && (f.limited() || o.Duration > 0):
			return context.Cause(ctx)
		case t.Messages > 0 && t.Delivered == 0:
			return fmt.Errorf("nothing of %d messages has arrived: %w", t.Messages, via.ErrTimeout)
		}
		return nil
	})
}

func (r *streamReport) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `--- %s, %s priority, messages of %d bytes ---
%s arrived in %.2f s: %.1f MB/s, %.0f cells/s
%d messages sent, %d delivered, %d lost (%d came damaged)
%d cells dropped for want of room, told to stop %d times
`, r.Peer, r.Priority, r.Size, units.Amount(r.Bytes), r.Seconds, r.Rate, r.Cells, r.Messages, r.Delivered, r.Lost, r.Damaged, r.Drops, r.Stops)
	return errors.Join(err, printChannels(w, r.NIC))
}
