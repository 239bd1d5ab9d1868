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
	x, err := s.newEnd(ctx, from)
	if err != nil {
		return side, err
	}
	y, err := s.newEnd(ctx, to)
	if err != nil {
		return side, err
	}
	if err := Connect(ctx, x.vi, y.vi); err != nil {
		return side, err
	}
	defer func() { err = errors.Join(err, closeAll([]*end{x, y})) }()
	defer makeGarbage(s.Garbage)()
	if s.Test.oneSided() {
		if err := tellBoth(ctx, x, y); err != nil {
			return side, err
		}
		return s.pingPong(ctx, []*end{x})
	}
	a := startAccount()
	defer a.end(&side)
	if s.Test == Latency {
		h, err := measure.Latency(ctx, x, y, s.Bytes, time.Duration(s.Nanoseconds))
		if err != nil {
			return side, err
		}
		side.Latencies = &Histogram{h}
		side.Messages = 2 * uint64(h.TotalCount())
		side.Bytes = side.Messages * uint64(s.Bytes)
		return side, nil
	}
	side.Bytes, _, err = measure.Bandwidth(ctx, x, y, s.Bytes, time.Duration(s.Nanoseconds))
	side.Messages = side.Bytes / uint64(max(s.Bytes, 1))
	return side, err
}

// tellBoth tells two ends of this process where the other one's target is.
func tellBoth(ctx context.Context, x, y *end) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	x.rdma.other, y.rdma.other = y, x
	if err := errors.Join(x.tell(), y.tell()); err != nil {
		return err
	}
	return errors.Join(y.learn(ctx), x.learn(ctx))
}
