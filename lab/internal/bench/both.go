package bench

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/internal/measure"
	"github.com/trapeze-nic/trapeze/lab/internal/endpoint"
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

// join connects two endpoints of this process.
func (s *Spec) join(ctx context.Context, from, to *via.NIC) (x, y *endpoint.Endpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		listener := endpoint.Listener{NIC: to, Discriminator: discriminator,
			Options: func(via.Remote) (endpoint.Options, error) { return s.options(), nil }}
		var err error
		y, _, err = listener.Accept(ctx)
		accepted <- errors.Join(err, listener.Close())
	}()
	if x, err = endpoint.New(ctx, from, s.options()); err == nil {
		_, err = x.Connect(ctx, via.Address{MAC: to.Query().Address, Discriminator: discriminator}, nil)
	}
	if err != nil {
		cancel()
	}
	if err = errors.Join(err, <-accepted); err == nil {
		return x, y, nil
	}
	for _, e := range []*endpoint.Endpoint{x, y} {
		if e != nil {
			err = errors.Join(err, e.Close())
		}
	}
	return nil, nil, err
}
