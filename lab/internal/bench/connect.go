package bench

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// discriminator of the connections of a measurement.
const discriminator = "trapeze-bench/1"

// connectLimit bounds how long one end waits for the other one.
const connectLimit = 20 * time.Second

// Connect connects two VIs of this process, whose NICs are on one wire.
func Connect(ctx context.Context, x, y *via.VI) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	accepted := make(chan error, 1)
	go func() { accepted <- accept(ctx, y) }()
	err := request(ctx, x, y.NIC().Query().Address)
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-accepted)
}

// accept takes the next request to be connected.
func accept(ctx context.Context, vi *via.VI) error {
	c, err := vi.NIC().ConnectWait(ctx, discriminator)
	if err == nil {
		_, err = c.Accept(ctx, vi)
	}
	return err
}

// retryPause is the pause between two attempts to connect a bare VI, attemptLimit the time that one
// may take: what was lost while the other side came up is sent once more.
const (
	retryPause   = 200 * time.Microsecond
	attemptLimit = 2 * time.Second
)

// request asks until the other side waits.
func request(ctx context.Context, vi *via.VI, to via.MAC) error {
	for {
		limited, cancel := context.WithTimeout(ctx, attemptLimit)
		_, err := vi.ConnectRequest(limited, via.Address{MAC: to, Discriminator: discriminator}, "")
		cancel()
		if ctx.Err() != nil || !errors.Is(err, via.ErrNoMatch) && !errors.Is(err, via.ErrNotReachable) && !errors.Is(err, via.ErrTimeout) {
			return err
		}
		time.Sleep(retryPause)
	}
}
