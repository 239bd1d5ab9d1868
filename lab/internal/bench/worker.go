package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/trapeze-nic/trapeze/internal/via/transfer"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/via"
)

// Work carries a Spec out. ready is called when the other worker can be started.
// A source ends by itself, an echo when its source disconnects.
func Work(ctx context.Context, s Spec, ready func()) (side Side, err error) {
	if err := s.Validate(); err != nil {
		return side, err
	}
	if err := pinProcess(s.Core); err != nil {
		return side, err
	}
	nic, err := open(ctx, s.Address)
	if err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, nic.Close()) }()
	stop, err := s.profile()
	if err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if s.Role == Both {
		peer, err := open(ctx, s.Peer)
		if err != nil {
			return side, err
		}
		defer func() { err = errors.Join(err, peer.Close()) }()
		return workBoth(ctx, &s, nic, peer)
	}
	ends, err := s.connect(ctx, nic, ready)
	defer func() { err = errors.Join(err, closeAll(ends)) }()
	if err != nil {
		return side, err
	}
	defer makeGarbage(s.Garbage)()
	if s.Role == Echo {
		return s.echo(ctx, ends)
	}
	if s.Test == Latency {
		return s.pingPong(ctx, ends)
	}
	return s.stream(ctx, ends)
}

func open(ctx context.Context, address string) (*via.NIC, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return via.Open(ctx, address, via.WithErrorHandler(func(via.AsyncError) {}), via.WithLogger(quiet))
}

func (s *Spec) options() via.ConnOptions {
	o := via.ConnOptions{Reliability: levels[s.Reliability], MaxMessage: max(s.Bytes, 1), SendDepth: s.Window, RecvDepth: s.Window}
	if s.Test == Latency {
		// Receives are posted again a quarter of the depth at a time, while all buffers
		// still share a cache.
		o.RecvDepth = max(s.Window, min(16, (64<<10)/max(s.Bytes, 1)))
	}
	return o
}

// connect makes the worker's connections.
func (s *Spec) connect(ctx context.Context, nic *via.NIC, ready func()) (ends []*via.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	next := func() (*via.Conn, error) { return dial(ctx, nic, s.options()) }
	if s.Role == Echo {
		l, err := listen(nic, s.options())
		if err != nil {
			return nil, err
		}
		defer l.Close()
		next = func() (*via.Conn, error) { return l.Accept(ctx) }
	}
	ready()
	for i := range s.VIs {
		c, err := next()
		if err != nil {
			return ends, fmt.Errorf("VI %d of %d: %w", i+1, s.VIs, err)
		}
		ends = append(ends, c)
	}
	return ends, nil
}

func closeAll(ends []*via.Conn) error {
	var errs []error
	for _, c := range ends {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// echo sends back what comes, or only takes it, until the source disconnects.
func (s *Spec) echo(ctx context.Context, ends []*via.Conn) (side Side, err error) {
	a := startAccount()
	defer a.end(&side)
	into := make([][]byte, s.batch())
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		if looks <= 0 {
			if looks, err = backOff(ctx, ends[0].VI().NIC(), s.Bytes, &since); err != nil {
				return side, err
			}
		}
		for _, c := range ends {
			n, err := s.reply(ctx, c, into, &side)
			if transfer.PeerLost(err) {
				return side, nil
			}
			if err != nil {
				return side, err
			}
			if n > 0 {
				looks, since = checkEvery, time.Time{}
			}
		}
	}
}

// reply takes what has come to a connection, and in a latency test answers it. It
// returns how many messages there were.
func (s *Spec) reply(ctx context.Context, c *via.Conn, into [][]byte, side *Side) (int, error) {
	if s.Test != Latency {
		n, err := c.ReceiveBatch(into)
		if n == 0 || err != nil {
			return 0, err
		}
		side.Messages += uint64(n)
		for _, m := range into[:n] {
			side.Bytes += uint64(len(m))
		}
		return n, c.Release()
	}
	m, err := c.TryReceive()
	if m == nil || err != nil {
		return 0, err
	}
	side.Messages++
	side.Bytes += uint64(len(m))
	// First, as an application would that is in a hurry.
	if err := answer(ctx, c, len(m)); err != nil {
		return 0, err
	}
	return 1, tidy(c)
}

func answer(ctx context.Context, c *via.Conn, n int) error {
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		buf, err := c.TryAcquire()
		if err != nil {
			return err
		}
		if buf != nil {
			if err := c.Post(n); err != nil {
				return err
			}
			c.Poll() // an inline NIC sends it now, not when it is next looked at
			return nil
		}
		if looks <= 0 {
			if looks, err = backOff(ctx, c.VI().NIC(), n, &since); err != nil {
				return err
			}
		}
	}
}

// tidy gives back the last message and finds a buffer for the next one: what can be
// done while a message is under way.
func tidy(c *via.Conn) error {
	if err := c.Release(); err != nil {
		return err
	}
	_, err := c.TryAcquire()
	return err
}

// calibration is for how long the time stamp counter is compared with the clock.
const calibration = 20 * time.Millisecond

// pingPong times round trips on each VI in turn, by the time stamp counter as
// ucx_perftest does: the clock costs twice as much to read.
func (s *Spec) pingPong(ctx context.Context, ends []*via.Conn) (side Side, err error) {
	side.Latencies = newHistogram()
	rate := ticks.Rate(calibration)
	budget := uint64(float64(s.Nanoseconds) * rate)
	var a *account
	last := ticks.Now()
	end := last + budget/10
	times := make([]uint64, 0, 4096)
	for i := 0; ; i++ {
		if err := roundTrip(ctx, ends[i%len(ends)], s.Bytes, i >= len(ends)); err != nil {
			return side, err
		}
		now := ticks.Now()
		times = append(times, now-last)
		if last = now; len(times) < cap(times) && now < end {
			continue
		}
		// Between two round trips, so that it counts for neither.
		if a != nil {
			side.Messages += 2 * uint64(len(times))
			side.Bytes += 2 * uint64(s.Bytes) * uint64(len(times))
			for _, t := range times {
				// Within the range, so that there can be no error.
				_ = side.Latencies.RecordValue(min(max(int64(float64(t)/rate/2), 1), int64(longest)))
			}
		}
		times = times[:0]
		switch {
		case now < end:
		case a != nil:
			a.end(&side)
			return side, nil
		default:
			a = startAccount()
			end = ticks.Now() + budget
		}
		last = ticks.Now()
	}
}

// roundTrip sends a message and takes the answer. The answer before it, if there was
// one, is given back while the message is under way.
func roundTrip(ctx context.Context, c *via.Conn, n int, again bool) error {
	if err := answer(ctx, c, n); err != nil {
		return err
	}
	if again {
		if err := tidy(c); err != nil {
			return err
		}
	}
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		m, err := c.TryReceive()
		if err != nil {
			return err
		}
		if m != nil {
			if len(m) != n {
				return fmt.Errorf("a message of %d bytes came back with %d", n, len(m))
			}
			return nil
		}
		if looks <= 0 {
			if looks, err = backOff(ctx, c.VI().NIC(), n, &since); err != nil {
				return err
			}
		}
	}
}

// stream sends as fast as the windows allow. What counts is what has arrived: a
// send on a reliable VI completes then.
func (s *Spec) stream(ctx context.Context, ends []*via.Conn) (side Side, err error) {
	budget := time.Duration(s.Nanoseconds)
	if _, err := s.sendFor(ctx, ends, budget/10); err != nil {
		return side, err
	}
	a := startAccount()
	side.Messages, err = s.sendFor(ctx, ends, budget)
	a.end(&side)
	side.Bytes = side.Messages * uint64(s.Bytes)
	return side, err
}

// batch is how many messages of a stream are posted at a time: some batches make a
// window, so that one end has something to do while the other fills the next.
func (s *Spec) batch() int { return max(s.Window/8, 1) }

// sendFor sends for about d and waits until all has arrived.
func (s *Spec) sendFor(ctx context.Context, ends []*via.Conn, d time.Duration) (sent uint64, err error) {
	// How many posts there are between two looks at the clock: each connection has its
	// turn.
	burst := max(16, len(ends))
	var since time.Time
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		before := sent
		for turn := range burst {
			n, err := postBatch(ends[turn%len(ends)], s.batch(), s.Bytes)
			sent += uint64(n)
			if err != nil {
				return sent, err
			}
		}
		if sent != before {
			since = time.Time{}
		} else if _, err := backOff(ctx, ends[0].VI().NIC(), s.Bytes, &since); err != nil {
			return sent, err
		}
	}
	for _, e := range ends {
		if err := e.Flush(ctx); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// postBatch posts up to most messages of n bytes, as many as there is room for, and
// returns how many.
func postBatch(c *via.Conn, most, n int) (int, error) {
	for i := range most {
		buf, err := c.TryAcquire()
		if err != nil {
			return i, err
		}
		if buf == nil {
			most = i
			break
		}
		if err := c.Add(n); err != nil {
			return i, err
		}
	}
	return most, c.PostBatch()
}
