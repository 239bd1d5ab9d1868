package ping

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
	"github.com/trapeze-nic/trapeze/via"
)

// Options of a run.
type Options struct {
	// Count of round trips; zero goes on until the context ends.
	Count uint64
	// Bytes in a message.
	Bytes int
	// Interval between the starts of two round trips.
	Interval time.Duration
	// Wait is how long to wait for an answer before it is lost.
	Wait time.Duration
}

// errLost: no answer came in time.
var errLost = errors.New("lost")

// Reply is told of each message: how long the round trip took, or false if no
// answer came in time.
type Reply func(sequence uint64, d time.Duration, answered bool)

// Run sends messages on e and times their return. If ctx ends, the statistics
// hold what was measured until then, and the error is nil.
func Run(ctx context.Context, e *endpoint.Endpoint, o Options, reply Reply) (*Stats, error) {
	s := newStats()
	pattern := make([]byte, o.Bytes)
	for seq := uint64(0); o.Count == 0 || seq < o.Count; seq++ {
		start := time.Now()
		d, err := s.once(ctx, e, o.Wait, uint32(seq), pattern)
		if ctx.Err() != nil {
			return s, nil
		}
		if err != nil && !errors.Is(err, errLost) {
			return s, err
		}
		s.Sent++
		if err == nil {
			s.record(d)
		}
		if reply != nil {
			reply(seq, d, err == nil)
		}
		if seq+1 != o.Count && !sleep(ctx, o.Interval-time.Since(start)) {
			return s, nil
		}
	}
	return s, nil
}

// once makes one round trip. The sequence number travels as immediate data, so
// that a message may have any length.
func (s *Stats) once(ctx context.Context, e *endpoint.Endpoint, wait time.Duration, seq uint32, pattern []byte) (time.Duration, error) {
	buf, err := e.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	for i := range pattern {
		pattern[i] = byte(i) + byte(seq)
	}
	n := copy(buf, pattern)
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	start := time.Now()
	if err := e.PostImmediate(n, seq); err != nil {
		return 0, err
	}
	for {
		b, err := e.Receive(limited)
		d := time.Since(start)
		if errors.Is(err, via.ErrTimeout) {
			return 0, errLost
		}
		if err != nil {
			return 0, err
		}
		got, ok := e.Immediate()
		mine := ok && got == seq
		switch {
		case !mine:
			s.Late++
		case !bytes.Equal(b, pattern):
			s.Corrupt++
		}
		if err := e.Release(); err != nil {
			return 0, err
		}
		if mine {
			return d, nil
		}
	}
}

// sleep waits for d and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
