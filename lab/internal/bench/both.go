package bench

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/via"
)

// workBoth measures between two NICs of this process that one goroutine drives.
func workBoth(ctx context.Context, s *Spec, from, to *via.NIC) (side Side, err error) {
	x, y, err := s.join(ctx, from, to)
	if err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, x.Close(), y.Close()) }()
	defer makeGarbage(s.Garbage)()
	a := startAccount()
	defer a.end(&side)
	if s.Test == Latency {
		if side.Latencies, err = measure.Latency(ctx, x, y, s.Bytes, time.Duration(s.Nanoseconds)); err == nil {
			side.Messages = 2 * uint64(side.Latencies.TotalCount())
			side.Bytes = side.Messages * uint64(s.Bytes)
		}
		return side, err
	}
	side.Bytes, _, err = measure.Bandwidth(ctx, x, y, s.Bytes, time.Duration(s.Nanoseconds))
	side.Messages = side.Bytes / uint64(max(s.Bytes, 1))
	return side, err
}

// join connects two NICs of this process.
func (s *Spec) join(ctx context.Context, from, to *via.NIC) (x, y *via.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := listen(to, s.options())
	if err != nil {
		return nil, nil, err
	}
	if x, err = dial(ctx, from, s.options()); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	y, err = l.Accept(ctx)
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, nil, errors.Join(err, x.Close())
	}
	return x, y, nil
}
