package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// discriminator of the connections of a measurement.
var discriminator = []byte("trapeze-bench/1")

// patience bounds how long one end waits for the other one.
const patience = 20 * time.Second

// listen takes connections with options on a NIC.
func listen(n *via.NIC, o via.ConnOptions) (*via.Listener, error) {
	lc := via.ListenConfig{Options: func(via.Remote) (via.ConnOptions, error) { return o, nil }}
	return lc.Listen(n, discriminator)
}

// dial connects with the NIC at the other end of the wire.
func dial(ctx context.Context, n *via.NIC, o via.ConnOptions) (*via.Conn, error) {
	d := via.Dialer{ConnOptions: o}
	return d.Dial(ctx, n, via.Address{MAC: descriptors.Broadcast, Discriminator: discriminator})
}

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
