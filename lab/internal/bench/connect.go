package bench

import (
	"context"
	"errors"
	"runtime"

	"github.com/trapeze-nic/trapeze/via"
)

// Connect connects two VIs of this process, whose NICs are on one wire.
func Connect(ctx context.Context, x, y *via.VI) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		c, err := y.NIC().ConnectWait(ctx, discriminator)
		if err == nil {
			_, err = c.Accept(ctx, y)
		}
		accepted <- err
	}()
	to := via.Address{MAC: y.NIC().Query().Address, Discriminator: discriminator}
	_, err := x.ConnectRequest(ctx, to, nil)
	for errors.Is(err, via.ErrNoMatch) {
		// The other goroutine has not come to wait yet.
		runtime.Gosched()
		_, err = x.ConnectRequest(ctx, to, nil)
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-accepted)
}
