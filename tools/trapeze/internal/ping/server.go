package ping

import (
	"context"
	"errors"
	"sync"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Discriminator of the connection point.
var Discriminator = []byte("trapeze-ping/1")

// Depth is the number of buffers in each direction.
const Depth = 16

// maxClients bounds the memory that clients can make a server take.
const maxClients = 64

// maxBuffers bounds it in bytes for one client.
const maxBuffers = 32 << 20

// depthFor is how many buffers an endpoint with messages of n bytes gets.
func depthFor(n int) int { return max(2, min(Depth, maxBuffers/max(n, 1)/2)) }

// EndpointOptions are what both sides use for messages of n bytes.
func EndpointOptions(level via.Reliability, n int) endpoint.Options {
	d := depthFor(n)
	return endpoint.Options{Reliability: level, MaxMessage: max(n, 1), SendDepth: d, RecvDepth: d}
}

// Client is told to whoever watches a server.
type Client struct {
	Remote via.Remote
	// Echoed counts messages returned; Err is why the connection ended, nil if
	// the client ended it. Both are set when it has.
	Echoed uint64
	Err    error
}

// Serve returns whatever clients send, until ctx ends. ended, if not nil, is
// told of each client that has left or could not be served; it may be called
// from several goroutines.
func Serve(ctx context.Context, nic *via.NIC, ended func(Client)) error {
	if ended == nil {
		ended = func(Client) {}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := endpoint.Listener{
		NIC: nic, Discriminator: Discriminator,
		Options: func(r via.Remote) (endpoint.Options, error) {
			return EndpointOptions(r.Reliability, int(r.MaxTransfer)), nil
		},
		Refused: func(r via.Remote, err error) { ended(Client{Remote: r, Err: err}) },
	}
	places := make(chan struct{}, maxClients)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		e, remote, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer func() { <-places }()
			c := Client{Remote: remote}
			c.Echoed, c.Err = echo(ctx, e)
			if err := e.Close(); c.Err == nil {
				c.Err = err
			}
			ended(c)
		})
	}
}

// echo returns messages until the client leaves or ctx ends.
func echo(ctx context.Context, e *endpoint.Endpoint) (n uint64, err error) {
	for {
		in, err := e.Receive(ctx)
		if errors.Is(err, transfer.ErrPeerLost) || ctx.Err() != nil {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		out, err := e.Acquire(ctx)
		if err != nil {
			return n, err
		}
		immediate, _ := e.Immediate()
		size := copy(out, in)
		if err := e.Release(); err != nil {
			return n, err
		}
		if err := e.PostImmediate(size, immediate); err != nil {
			return n, err
		}
		n++
	}
}
