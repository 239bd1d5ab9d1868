package cellstream

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Options of a stream.
type Options struct {
	Priority channel.Priority
	// Size of a message in bytes: a multiple of channel.Word, MinSize to MaxSize.
	Size int
	// Messages, Bytes and Duration end it, whichever comes first; zero is no limit.
	Messages, Bytes uint64
	Duration        time.Duration
	// Rate is the most bytes that are sent a second.
	Rate float64
	// Timeout limits the time without a word of the other end.
	Timeout time.Duration
	// Progress, if not nil, is told of bytes that have arrived.
	Progress func(bytes int)
}

// Totals describes a stream that has ended, as its sending end sees it.
type Totals struct {
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
	// Stalls counts how often the messages under way were given up.
	Stalls uint64 `json:"-"`
}

// Times of the protocol, which are ours.
const (
	// firstStall and leastStall bound how long nothing new may be reported, while all room is
	// taken, before what is under way counts as lost. Like a retransmission timer (RFC 6298,
	// 2) it follows the times from messages to their reports.
	firstStall = time.Second
	leastStall = 200 * time.Millisecond
	// repeatEvery is the time between two messages that say the end, until it is reported.
	repeatEvery = 40 * time.Millisecond
	// parting limits the wait for the last report.
	parting = 2 * time.Second
	// adjust is the time between two looks at the pace.
	adjust = time.Millisecond
	// slowest is the least pace, as a part of the greatest: what channel.Rate adds at a time.
	slowest = 1.0 / 16
)

// sender is the sending end of a stream.
type sender struct {
	c      *channel.Channel
	o      Options
	window uint64
	rate   *channel.Rate

	began  time.Time
	sent   uint64 // messages
	room   uint64 // number of the first message that there is no room for
	got    Counts
	heard  time.Time // when the last report came
	moved  time.Time // when one came that said more than the one before
	stalls uint64

	timed        uint64 // number of a message whose report is timed
	timedAt      time.Time
	smooth, vary time.Duration // time to a report, and its deviation
	stall        time.Duration
	adjusted     time.Time
}

// Send sends messages over a channel with pages of PageSize until a limit is reached, or ctx
// ends, which is no error. Totals are valid with an error too. It fails with
// transfer.ErrPeerLost, with via.ErrTimeout if nothing was heard for so long as Timeout, and
// with via.ErrProtocol.
func Send(ctx context.Context, c *channel.Channel, o Options) (Totals, error) {
	now := time.Now()
	s := &sender{c: c, o: o, window: uint64(window(o.Size)), rate: channel.NewRate(o.Rate*slowest, o.Rate),
		began: now, heard: now, moved: now, adjusted: now, timedAt: now, stall: firstStall}
	s.room = s.window
	err := s.run(ctx)
	elapsed := time.Since(s.began)
	if err == nil {
		err = s.end(context.WithoutCancel(ctx))
		elapsed = s.heard.Sub(s.began)
	}
	return s.totals(elapsed.Seconds()), transfer.Lost(err)
}

func (s *sender) totals(seconds float64) Totals {
	t := Totals{Messages: s.sent, Delivered: s.got.Messages, Lost: s.sent - min(s.got.Messages, s.sent), Damaged: s.got.Damaged, Bytes: s.got.Bytes,
		Seconds: seconds, Drops: s.got.Drops, Stops: s.got.Stops, Pace: s.rate.BytesPerSecond() / 1e6, Stalls: s.stalls}
	if seconds > 0 {
		t.Rate = float64(t.Bytes) / 1e6 / seconds
		t.Cells = float64(t.Delivered) * float64(Cells(s.o.Size)) / seconds
	}
	return t
}

// over reports whether a limit has been reached.
func (s *sender) over(now time.Time) bool {
	return s.o.Messages > 0 && s.sent >= s.o.Messages || s.o.Bytes > 0 && s.sent*uint64(s.o.Size) >= s.o.Bytes ||
		s.o.Duration > 0 && now.Sub(s.began) >= s.o.Duration
}

// run sends messages.
func (s *sender) run(ctx context.Context) error {
	due := time.Duration(0) // since began, when the next message may be sent
	for {
		now := time.Now()
		at := now.Sub(s.began)
		if ctx.Err() != nil || s.over(now) {
			return nil
		}
		if s.sent < s.room && at >= due {
			switch err := s.post(kindMessage, s.sent); err {
			case nil:
				if s.sent == s.timed {
					s.timedAt = now
				}
				s.sent++
				due = at + s.rate.Delay(at, s.o.Size)
			case via.ErrQueueFull: // until some have left
			default:
				return err
			}
			if err := s.take(); err != nil {
				return err
			}
			continue
		}
		wait := s.stall
		if s.sent < s.room {
			wait = min(wait, due-at)
		}
		m, err := next(ctx, s.c, wait)
		switch {
		case err == via.ErrNotDone && now.Sub(s.heard) > s.o.Timeout:
			return fmt.Errorf("%w: no report for %v", via.ErrTimeout, s.o.Timeout)
		case err == via.ErrNotDone:
		case err != nil:
			return err
		default:
			if err := s.read(m); err != nil {
				return err
			}
		}
	}
}

// post sends a message with a number, from where one was that has left. It fails with
// via.ErrQueueFull if none has.
func (s *sender) post(kind, number uint64) error {
	words := s.o.Size / channel.Word
	slots := uint64((s.c.Words() - 1) / words)
	sent, err := s.c.Sent(s.o.Priority)
	if err != nil {
		return err
	}
	if uint64(sent.Taken-sent.Left) >= slots {
		return via.ErrQueueFull
	}
	start := int(number%slots) * words
	var b [channel.Word]byte
	binary.BigEndian.PutUint64(b[:], kind|number&numberMask)
	s.c.SendPages().Put(start, b[:])
	if kind == kindEnd {
		words = 1
	}
	return s.c.Send(s.o.Priority, start, start+words)
}

// take reads reports that have come.
func (s *sender) take() error {
	for {
		m, err := s.c.Poll()
		switch err {
		case via.ErrNotDone:
			return nil
		case nil:
			if err := s.read(m); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// read reads a report. One that is damaged is as good as lost.
func (s *sender) read(m channel.PDU) error {
	if m.Err != nil {
		return s.c.Release(m)
	}
	var b [reportSize]byte
	if m.Length != reportSize {
		return fmt.Errorf("%w: a report of %d bytes", via.ErrProtocol, m.Length)
	}
	s.c.Read(m, b[:])
	if err := s.c.Release(m); err != nil {
		return err
	}
	got, err := parseCounts(&b, &s.got, s.sent, s.o.Size)
	if err != nil {
		return err
	}
	if s.o.Progress != nil && got.Bytes > s.got.Bytes {
		s.o.Progress(int(got.Bytes - s.got.Bytes))
	}
	s.heard = time.Now()
	switch {
	case got.Over > s.got.Over:
		s.moved = s.heard
		s.measure(got.Over)
		s.room = max(s.room, got.Over+s.window)
	case s.sent >= s.room && s.heard.Sub(s.moved) >= s.stall:
		// Who receives says that nothing comes.
		s.stalls++
		s.moved, s.stall = s.heard, min(2*s.stall, 8*firstStall)
		s.room, s.timed = s.sent+s.window, s.sent
	}
	s.got = got
	if s.heard.Sub(s.adjusted) >= adjust {
		s.adjusted = s.heard
		// A message that did not come is a loss as well, wherever it was.
		s.rate.Report(channel.Drops{Cells: int((got.Drops + got.Next - got.Messages) % datasheet.ChannelDropsMany)})
	}
	return nil
}

// measure takes note of a report of messages up to over.
func (s *sender) measure(over uint64) {
	if over <= s.timed {
		return
	}
	took := s.heard.Sub(s.timedAt)
	if s.smooth == 0 {
		s.smooth, s.vary = took, took/2
	} else {
		s.vary += ((s.smooth - took).Abs() - s.vary) / 4
		s.smooth += (took - s.smooth) / 8
	}
	s.stall = max(s.smooth+4*s.vary, leastStall)
	s.timed = s.sent // the next one
}

// end says that the stream has ended, until it is told that this has come.
func (s *sender) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, parting)
	defer cancel()
	number := s.sent
	s.sent++ // as far as reports go
	defer func() { s.sent-- }()
	var said time.Time // zero: not yet
	for {
		if time.Since(said) > repeatEvery {
			switch err := s.post(kindEnd, number); err {
			case nil:
				said = time.Now()
			case via.ErrQueueFull: // until some have left
			default:
				return err
			}
		}
		m, err := next(ctx, s.c, repeatEvery)
		if err == nil {
			err = s.read(m)
		}
		switch {
		case err == nil && s.got.Next > number:
			// The last message is not one of the stream's.
			s.got.Next, s.got.Over = s.got.Next-1, s.got.Over-1
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: the other end does not say what has come", via.ErrTimeout)
		case err != nil && err != via.ErrNotDone:
			return err
		}
	}
}
