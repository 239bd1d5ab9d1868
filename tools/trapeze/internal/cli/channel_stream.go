package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cellstream"
	"github.com/trapeze-nic/trapeze/via"
)

// streamReport is what channel stream prints with --json.
type streamReport struct {
	Peer      string  `json:"peer" help:"MAC"`
	Priority  string  `json:"priority"`
	Size      int     `json:"message_bytes"`
	Messages  uint64  `json:"messages" help:"sent"`
	Delivered uint64  `json:"delivered"`
	Lost      uint64  `json:"lost"`
	Damaged   uint64  `json:"damaged" help:"of those that are lost, or parts of them"`
	Bytes     uint64  `json:"bytes" help:"delivered"`
	Seconds   float64 `json:"seconds"`
	Rate      float64 `json:"mb_per_s" help:"10^6 bytes"`
	Cells     float64 `json:"cells_per_s"`
	Drops     uint64  `json:"drops" help:"cells that the receiving NIC had no room for"`
	Stops     uint64  `json:"stops" help:"times that it has told the sender to stop"`
	Pace      float64 `json:"pace_mb_per_s" help:"what the flow control allows at the end"`

	NIC     *telemetry.Channels `json:"nic,omitempty" help:"of the sending one, unless that has failed"`
	Capture *captureReport      `json:"capture,omitempty" help:"with --capture"`
}

type streamFlags struct {
	target   channelTarget
	size     option.Bytes
	bytes    option.Bytes
	rate     option.Bytes
	count    uint64
	duration time.Duration
}

// streamDuration is how long a stream takes if nothing else is said.
const streamDuration = 5 * time.Second

func (p *program) channelStream() *cobra.Command {
	f := streamFlags{size: 4096, rate: 4 << 30}
	c := &cobra.Command{
		Use:   "stream",
		Short: "Send bulk over a channel, and see what arrives",
		Long: `Send messages to a 'trapeze channel listen' on the same wire, as fast as that makes room
for them, and show how much has arrived. Channels are best effort: what is lost is counted
and not sent again, and the pace halves. Without --device both ends are emulated in this
process.

It ends after --duration, --bytes or --count, whichever comes first; with --duration 0 and
neither of the others when it is interrupted, and then with exit code 0. The totals are shown
in any case. Sizes are in bytes, or as in 64K, 512M and 2G.` + captureHelp + `

` + keys.Of(streamReport{}),
		Example: `  trapeze channel stream
  trapeze channel stream --device 'emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000' --duration 10s
  trapeze channel stream --device 'emu:?wire=shm:/run/wire' --priority high --bytes 1G --json
  trapeze channel stream --count 100 --capture cells.pcap && tshark -r cells.pcap`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return p.runChannelStream(ctx, f) }),
	}
	f.target.register(c, "low")
	c.Flags().VarP(&f.size, "size", "s", "size of a message, a multiple of 8")
	c.Flags().Var(&f.bytes, "bytes", "end after so many bytes, rounded up to whole messages")
	c.Flags().Uint64VarP(&f.count, "count", "c", 0, "end after so many messages")
	c.Flags().DurationVar(&f.duration, "duration", streamDuration, "end after this time; 0 is until interrupted (no limit by default with --bytes or --count)")
	c.Flags().Var(&f.rate, "rate", "bytes a second that are sent at most")
	return c
}

// options checks the flags.
func (f *streamFlags) options() (o cellstream.Options, err error) {
	if o.Priority, err = f.target.check(); err != nil {
		return o, err
	}
	switch {
	case f.size < cellstream.MinSize || f.size%channel.Word != 0 || f.size > cellstream.MaxSize:
		return o, option.Errorf("--size %d: a multiple of %d up to %d", f.size, channel.Word, cellstream.MaxSize)
	case f.duration < 0:
		return o, option.Errorf("--duration %v: it must not be negative", f.duration)
	case f.rate < cellstream.MinSize:
		return o, option.Errorf("--rate %d: %d or more", f.rate, cellstream.MinSize)
	}
	o.Size, o.Bytes, o.Messages, o.Duration = int(f.size), uint64(f.bytes), f.count, f.duration
	if f.limited() && !f.target.command.Flags().Changed("duration") {
		o.Duration = 0
	}
	o.Rate, o.Patience = float64(f.rate), f.target.timeout
	return o, nil
}

// limited reports whether something other than time ends the stream.
func (f *streamFlags) limited() bool { return f.bytes > 0 || f.count > 0 }

func (p *program) runChannelStream(ctx context.Context, f streamFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	sink := func(ctx context.Context, nic *via.NIC) error { return sinkChannels(ctx, nic, nil) }
	return f.target.with(ctx, "channel stream", sink, func(at channelPeer) error {
		c, err := at.dial(ctx, cellstream.Name, channel.Options{PageSize: cellstream.PageSize})
		if err != nil {
			return err
		}
		total := int64(-1)
		if f.limited() {
			total = int64(max(f.bytes, option.Bytes(f.count)*f.size))
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
		r := describeStream(c.RemoteAddress(), f.target.priority, o, t)
		r.NIC = nic
		r.Capture = at.capture.finish(&err)
		err = errors.Join(p.Print(r, func(w io.Writer) error { return r.print(w) }), explainLost(err, "is 'trapeze channel listen' still running there?"))
		defer p.noteCapture(r.Capture)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil && (f.limited() || o.Duration > 0):
			return context.Cause(ctx)
		case t.Sent > 0 && t.Messages == 0:
			return fmt.Errorf("nothing of %d messages has arrived: %w", t.Sent, via.ErrTimeout)
		}
		return nil
	})
}

func describeStream(to via.Address, priority string, o cellstream.Options, t cellstream.Totals) *streamReport {
	r := &streamReport{Peer: to.MAC.String(), Priority: priority, Size: o.Size,
		Messages: t.Sent, Delivered: t.Messages, Lost: t.Sent - min(t.Messages, t.Sent), Damaged: t.Damaged, Bytes: t.Bytes,
		Seconds: t.Elapsed.Seconds(), Drops: t.Drops, Stops: t.Stops, Pace: t.Pace / 1e6}
	if t.Elapsed > 0 {
		r.Rate = float64(r.Bytes) / 1e6 / r.Seconds
		r.Cells = float64(r.Delivered) * float64(cellstream.Cells(o.Size)) / r.Seconds
	}
	return r
}

func (r *streamReport) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `--- %s, %s priority, messages of %d bytes ---
%s arrived in %.2f s: %.1f MB/s, %.0f cells/s
%d messages sent, %d delivered, %d lost (%d came damaged)
%d cells dropped for want of room, told to stop %d times
`, r.Peer, r.Priority, r.Size, amount(r.Bytes), r.Seconds, r.Rate, r.Cells, r.Messages, r.Delivered, r.Lost, r.Damaged, r.Drops, r.Stops)
	return errors.Join(err, printChannels(w, r.NIC))
}
