package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	for i, d := range nics {
		server, err := vfiouser.NewServer(d, vfiouser.ServerOptions{})
		if err != nil {
			return err
		}
		l, err := vfiouser.Listen(s.Sockets[i], 0o600)
		if err != nil {
			return err
		}
		serving.Go(func() { cancel(server.Serve(ctx, l)) })
	}
	fmt.Fprintln(w, readyLine)
	<-ctx.Done()
	if stop.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}
