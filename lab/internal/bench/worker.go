package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	nic, err := s.open(ctx, s.Address)
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
		peer, err := s.open(ctx, s.Peer)
		if err != nil {
			return side, err
		}
		defer func() { err = errors.Join(err, peer.Close()) }()
		ready()
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
	if s.Test == Bandwidth {
		return s.stream(ctx, ends)
	}
	return s.pingPong(ctx, ends)
}

// Quiet are options of a NIC whose log and errors are not read.
func Quiet() via.Options {
	return via.Options{OnError: func(via.AsyncError) {}, Logger: slog.New(slog.DiscardHandler)}
}

// open opens one of the worker's NICs.
func (s *Spec) open(ctx context.Context, address string) (*via.NIC, error) {
	opts := Quiet()
	opts.Eager = s.Eager
	return via.Open(ctx, address, opts)
}

// Open opens a NIC that is Quiet.
func Open(ctx context.Context, address string) (*via.NIC, error) {
	return via.Open(ctx, address, Quiet())
}

// connect makes the worker's ends and connects them.
func (s *Spec) connect(ctx context.Context, nic *via.NIC, ready func()) (ends []*end, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	ready()
	for i := range s.VIs {
		e, err := s.newEnd(ctx, nic)
		if err == nil {
			ends = append(ends, e)
			if s.Role == Echo {
				err = accept(ctx, e.vi)
			} else {
				err = request(ctx, e.vi, datasheet.Broadcast)
			}
		}
		if err == nil && s.Test.oneSided() {
			if err = e.tell(); err == nil {
				err = e.learn(ctx)
			}
		}
		if err != nil {
			return ends, fmt.Errorf("VI %d of %d: %w", i+1, s.VIs, err)
		}
	}
	return ends, nil
}

// echo sends back what comes, or only takes it, until the source disconnects.
func (s *Spec) echo(ctx context.Context, ends []*end) (side Side, err error) {
	a := startAccount()
	defer a.end(&side)
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		if looks <= 0 {
			if looks, err = backOff(ctx, ends[0].vi.NIC(), s.Bytes, &since); err != nil {
				return side, err
			}
		}
		for _, e := range ends {
			n, err := s.reply(ctx, e, &side)
			if via.Ended(err) {
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

// reply takes what has come to an end, and in a test of round trips answers it. It
// returns how many messages there were.
func (s *Spec) reply(ctx context.Context, e *end, side *Side) (int, error) {
	switch s.Test {
	case Bandwidth:
		n, bytes, err := e.drain(s.batch())
		side.Messages += uint64(n)
		side.Bytes += bytes
		return n, err
	case Put, Get:
		return s.replyRDMA(ctx, e, side)
	}
	m, err := e.TryReceive()
	if m == nil || err != nil {
		return 0, err
	}
	side.Messages++
	side.Bytes += uint64(len(m))
	// First, as an application would that is in a hurry.
	if err := answer(ctx, e, len(m)); err != nil {
		return 0, err
	}
	return 1, tidy(e)
}

func answer(ctx context.Context, e *end, n int) error {
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		buf, err := e.TryAcquire()
		if err != nil {
			return err
		}
		if buf != nil {
			return e.Post(n)
		}
		if looks <= 0 {
			if looks, err = backOff(ctx, e.vi.NIC(), n, &since); err != nil {
				return err
			}
		}
	}
}

// tidy gives back the buffer of the last message and takes back those that have
// been sent: what can be done while the next message is under way.
func tidy(e *end) error {
	if e.held {
		if err := e.Release(); err != nil {
			return err
		}
	}
	return e.reap()
}

// calibration is for how long the time stamp counter is compared with the clock.
const calibration = 20 * time.Millisecond

// turn does once what is timed.
func (s *Spec) turn(ctx context.Context, e *end) error {
	switch s.Test {
	case Put:
		return putRoundTrip(ctx, e, s.Bytes)
	case Get:
		return get(ctx, e, s.Bytes)
	}
	return roundTrip(ctx, e, s.Bytes)
}

// ways is the number of messages that are timed together, of which a latency is one.
func (s *Spec) ways() uint64 {
	if s.Test == Get {
		return 1
	}
	return 2
}

// pingPong times round trips, or reads, on each VI in turn, by the time stamp counter as
// ucx_perftest does: the clock costs twice as much to read.
func (s *Spec) pingPong(ctx context.Context, ends []*end) (side Side, err error) {
	side.Latencies = newHistogram()
	rate := ticks.Rate(calibration)
	budget := uint64(float64(s.Nanoseconds) * rate)
	var a *account
	last := ticks.Now()
	end := last + budget/10
	times := make([]uint64, 0, 4096)
	ways := s.ways()
	for i := 0; ; i++ {
		if err := s.turn(ctx, ends[i%len(ends)]); err != nil {
			return side, err
		}
		now := ticks.Now()
		times = append(times, now-last)
		if last = now; len(times) < cap(times) && now < end {
			continue
		}
		// Between two round trips, so that it counts for neither.
		if a != nil {
			side.Messages += ways * uint64(len(times))
			side.Bytes += ways * uint64(s.Bytes) * uint64(len(times))
			for _, t := range times {
				// Within the range, so that there can be no error.
				_ = side.Latencies.RecordValue(min(max(int64(float64(t)/rate/float64(ways)), 1), int64(longest)))
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

// roundTrip sends a message and takes the answer, whose buffer is given back while
// the next one is under way.
func roundTrip(ctx context.Context, e *end, n int) error {
	if err := answer(ctx, e, n); err != nil {
		return err
	}
	if err := tidy(e); err != nil {
		return err
	}
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		m, err := e.TryReceive()
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
			if looks, err = backOff(ctx, e.vi.NIC(), n, &since); err != nil {
				return err
			}
		}
	}
}

// stream sends as fast as the windows allow. Messages that have arrived count: a send on a
// reliable VI completes then.
func (s *Spec) stream(ctx context.Context, ends []*end) (side Side, err error) {
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

// batch is the number of messages of a stream that are posted at a time: some batches make a
// window, so that one end has something to do while the other fills the next.
func (s *Spec) batch() int { return max(s.Window/8, 1) }

// sendFor sends for about d and waits until all has arrived.
func (s *Spec) sendFor(ctx context.Context, ends []*end, d time.Duration) (sent uint64, err error) {
	// How many posts there are between two looks at the clock: each end has its
	// turn.
	burst := max(16, len(ends))
	var since time.Time
	for end := time.Now().Add(d); time.Now().Before(end); {
		if ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		before := sent
		for turn := range burst {
			n, err := ends[turn%len(ends)].postBatch(s.batch(), s.Bytes)
			sent += uint64(n)
			if err != nil {
				return sent, err
			}
		}
		if sent != before {
			since = time.Time{}
		} else if _, err := backOff(ctx, ends[0].vi.NIC(), s.Bytes, &since); err != nil {
			return sent, err
		}
	}
	for _, e := range ends {
		if err := e.flush(ctx); err != nil {
			return sent, err
		}
	}
	return sent, nil
}
