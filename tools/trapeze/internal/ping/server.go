package ping

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/tools/internal/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Discriminator of the connection point.
const Discriminator = "trapeze-ping/2"

// Depth is the number of buffers in each direction.
const Depth = 16

// What clients can make a server take: places, buffers in bytes for each, unless
// two messages each way need more, and in bytes for all.
const (
	Memory     = 512 << 20
	maxClients = 64
	maxBuffers = 4 << 20
)

// The server of a connection with unreliable delivery does not learn that its client
// has ended, so it closes the connection when nothing has come for IdleTimeout: soon
// enough for the next client, which tries for 10 s, to get the place. A client that has
// nothing to ask sends a message without bytes every keepAlive, which is not returned.
// All other messages begin with a sequence number of Prefix bytes, little endian: what
// is not reliable may be lost, come late, or come twice. Where delivery is reliable, none
// of this is needed. Both times are choices of ours.
const (
	Prefix = 4

	IdleTimeout = 6 * time.Second
	keepAlive   = time.Second
)

// errFull refuses a client; errIdle is why a connection was closed.
var (
	errFull = errors.New("the server has no memory left for messages of this size")
	errIdle = errors.New("nothing heard from it any more")
)

// depthFor returns the number of buffers of a connection with messages of n bytes.
func depthFor(n int) int { return max(2, min(Depth, maxBuffers/max(n, 1)/2)) }

// memoryFor returns the memory that such a connection takes, in bytes.
func memoryFor(n int) int64 { return 2 * int64(depthFor(n)) * int64(max(n, 1)) }

// ConnOptions returns a client's options for messages of n bytes.
func ConnOptions(level via.Reliability, n int) via.ConnOptions {
	if level == via.Unreliable {
		n += Prefix
	}
	return optionsFor(level, n)
}

// optionsFor returns both sides' options for messages of up to n bytes.
func optionsFor(level via.Reliability, n int) via.ConnOptions {
	d := depthFor(n)
	return via.ConnOptions{Reliability: level, MaxMessage: max(n, 1), SendDepth: d, RecvDepth: d}
}

// Client describes a client to the callbacks of a server.
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
	// IdleTimeout is the time without a message of an unreliable client before its
	// connection is closed; zero is the constant of that name.
	IdleTimeout time.Duration
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
	if s.IdleTimeout == 0 {
		s.IdleTimeout = IdleTimeout
	}
	if s.Memory == 0 {
		s.Memory = Memory
	}
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	var taken atomic.Int64 // of s.Memory
	places := make(chan struct{}, maxClients)
	lo := via.ListenOptions{
		// A request waits here for a place, and those behind it for theirs.
		Conn: func(r via.Remote) (via.ConnOptions, error) {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return via.ConnOptions{}, ctx.Err()
			}
			n := int(r.MaxTransfer)
			if taken.Add(memoryFor(n)) > s.Memory {
				taken.Add(-memoryFor(n))
				return via.ConnOptions{}, errFull
			}
			return optionsFor(r.Reliability, n), nil
		},
		Refused: func(r via.Remote, err error) {
			if ctx.Err() != nil { // it may not have had a place
				return
			}
			if !errors.Is(err, errFull) {
				taken.Add(-memoryFor(int(r.MaxTransfer)))
			}
			<-places
			if !errors.Is(err, via.ErrWithdrawn) { // it may have asked again
				s.Ended(Client{Remote: r, Err: err})
			}
		},
	}
	l, err := via.Listen(s.NIC, Discriminator, lo)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, l.Close())
		clients.Wait()
	}()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		clients.Go(func() {
			ended := Client{Remote: c.Remote()}
			ended.Echoed, ended.Err = echo(ctx, c, s.IdleTimeout)
			if err := c.Close(); ended.Err == nil && !transfer.PeerLost(err) {
				ended.Err = err
			}
			taken.Add(-memoryFor(int(c.Remote().MaxTransfer)))
			<-places
			s.Ended(ended)
		})
	}
}

// echo returns messages until the client leaves, nothing has come from it for the idle
// timeout if it is unreliable, or ctx ends.
func echo(ctx context.Context, e *via.Conn, idle time.Duration) (n uint64, err error) {
	receiving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var timer *time.Timer
	if unreliable(e) {
		timer = time.AfterFunc(idle, func() { stop(errIdle) })
		defer timer.Stop()
	}
	for {
		in, err := e.Receive(receiving)
		switch {
		case transfer.PeerLost(err) || ctx.Err() != nil:
			return n, nil
		case receiving.Err() != nil:
			return n, fmt.Errorf("%w for %v", errIdle, idle)
		case err != nil:
			return n, err
		}
		if timer != nil {
			timer.Reset(idle)
		}
		if unreliable(e) && len(in) == 0 { // it only says that it is there
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
		if err := e.Post(size); err != nil {
			return n, err
		}
		n++
	}
}

func unreliable(c *via.Conn) bool { return c.VI().Attributes().Reliability == via.Unreliable }
