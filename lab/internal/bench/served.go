package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// served is the job of the worker that has both NICs, behind vfio-user.
type served struct {
	Sockets []string `json:"sockets"` // a path for each NIC
}

// run serves until ctx ends. Clients can come once it has printed that it is ready.
func (s *served) run(ctx context.Context, w io.Writer) (err error) {
	nics, err := emulator.Fleet(ctx, "emu:", s.Sockets)
	if err != nil {
		return err
	}
	stop := ctx // the server is meant to end with it
	ctx, cancel := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	defer func() {
		cancel(nil)
		serving.Wait()
		for _, d := range nics {
			err = errors.Join(err, d.Close())
		}
	}()
	listeners := make([]net.Listener, len(nics))
	for i, d := range nics {
		if listeners[i], err = vfiouser.Listen(s.Sockets[i], 0o600); err != nil {
			return err
		}
		server, err := vfiouser.NewServer(d, vfiouser.ServerOptions{})
		if err != nil {
			return errors.Join(err, listeners[i].Close())
		}
		serving.Go(func() { cancel(server.Serve(ctx, listeners[i])) })
	}
	fmt.Fprintln(w, readyLine)
	<-ctx.Done()
	if stop.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}
