package bench

import (
	"context"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// openServer makes both NICs, and serves them behind vfio-user until ctx ends.
func (p *part) openServer(ctx context.Context) (func(*Side) error, error) {
	nics, err := emulator.Fleet(ctx, "emu:", p.Sockets)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, len(nics))
	for i, d := range nics {
		p.later(d.Close)
		server, err := vfiouser.NewServer(d, vfiouser.ServerOptions{})
		if err != nil {
			return nil, err
		}
		l, err := vfiouser.Listen(p.Sockets[i], 0o600)
		if err != nil {
			return nil, err
		}
		go func() { ended <- server.Serve(ctx, l) }()
	}
	p.ready()
	return func(*Side) error { return <-ended }, nil
}
