package ping

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Discriminator of the connection point.
var Discriminator = []byte("trapeze-ping/1")

// Depth is the number of buffers in each direction.
const Depth = 16

// What clients can make a server take: places, buffers in bytes for each, unless
// two messages each way need more, and in bytes for all.
const (
	Memory     = 512 << 20
	maxClients = 64
	maxBuffers = 4 << 20
)

// A client with unreliable delivery that dies goes unnoticed, so it is given up
// when it has not been heard for Silence: soon enough for the next one, which tries
// for 10 s, to find a place that it leaves. One that has nothing to ask says so more
// often: it sends a message without immediate data, which is not returned.
const (
	Silence   = 6 * time.Second
	keepAlive = time.Second
)

// errFull turns a client down; errSilent is why one was given up.
var (
	errFull   = errors.New("the server has no memory left for messages of this size")
	errSilent = errors.New("nothing heard from it any more")
)

// depthFor is how many buffers an endpoint with messages of n bytes gets.
func depthFor(n int) int { return max(2, min(Depth, maxBuffers/max(n, 1)/2)) }

// memoryFor is what such an endpoint takes, in bytes.
func memoryFor(n int) int64 { return 2 * int64(depthFor(n)) * int64(max(n, 1)) }

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

// Server returns whatever clients send.
type Server struct {
	NIC *via.NIC
	// Silence is after how much of it an unreliable client is given up; zero is the
	// constant of that name.
	Silence time.Duration
	// Memory bounds what the buffers of all clients take, in bytes; zero is the
	// constant of that name.
	Memory int64
	// Ended, if not nil, is told of each client that has left or could not be
	// served; it may be called from several goroutines.
	Ended func(Client)
}

// Serve serves until ctx ends.
func (s Server) Serve(ctx context.Context) (err error) {
	if s.Ended == nil {
		s.Ended = func(Client) {}
	}
	if s.Silence == 0 {
		s.Silence = Silence
	}
	if s.Memory == 0 {
		s.Memory = Memory
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var taken atomic.Int64 // of s.Memory
	l := endpoint.Listener{
		NIC: s.NIC, Discriminator: Discriminator,
		Options: func(r via.Remote) (endpoint.Options, error) {
			n := int(r.MaxTransfer)
			if taken.Add(memoryFor(n)) > s.Memory {
				taken.Add(-memoryFor(n))
				return endpoint.Options{}, errFull
			}
			return EndpointOptions(r.Reliability, n), nil
		},
		Refused: func(r via.Remote, err error) {
			if !errors.Is(err, errFull) {
				taken.Add(-memoryFor(int(r.MaxTransfer)))
			}
			s.Ended(Client{Remote: r, Err: err})
		},
	}
	defer func() { err = errors.Join(err, l.Close()) }()
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
			c.Echoed, c.Err = echo(ctx, e, s.Silence)
			if err := e.Close(); c.Err == nil {
				c.Err = err
			}
			taken.Add(-memoryFor(int(remote.MaxTransfer)))
			s.Ended(c)
		})
	}
}

// echo returns messages until the client leaves, falls silent, or ctx ends.
func echo(ctx context.Context, e *endpoint.Endpoint, silence time.Duration) (n uint64, err error) {
	hearing, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	var patience *time.Timer
	if e.Reliability() == via.Unreliable {
		patience = time.AfterFunc(silence, func() { silent(errSilent) })
		defer patience.Stop()
	}
	for {
		in, err := e.Receive(hearing)
		switch {
		case errors.Is(err, transfer.ErrPeerLost) || ctx.Err() != nil:
			return n, nil
		case hearing.Err() != nil:
			return n, fmt.Errorf("%w for %v", errSilent, silence)
		case err != nil:
			return n, err
		}
		if patience != nil {
			patience.Reset(silence)
		}
		immediate, asks := e.Immediate()
		if !asks { // it only says that it is there
			if err := e.Release(); err != nil {
				return n, err
			}
			continue
		}
		out, err := e.Acquire(ctx)
		if err != nil {
			return n, err
		}
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
