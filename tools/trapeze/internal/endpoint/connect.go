package endpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// ErrNobody: no one answered in time.
var ErrNobody = errors.New("nobody answered")

// again is the pause between attempts to connect to somebody who is not there
// yet.
const again = 100 * time.Millisecond

// attempt bounds one attempt, so that a peer that has been started meanwhile is
// asked afresh.
const attempt = 2 * time.Second

// Connect connects e with an endpoint at remote, and tries until ctx ends if
// nobody is there. Its error then wraps ErrNobody and via.ErrTimeout.
func (e *Endpoint) Connect(ctx context.Context, remote via.Address, local []byte) (via.Remote, error) {
	for {
		r, err := e.try(ctx, remote, local)
		if err == nil {
			return r, nil
		}
		cause := context.Cause(ctx)
		if cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return r, cause
		}
		if !retryable(err) && cause == nil {
			return r, err
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return r, context.Cause(ctx)
			}
			return r, nobody(err)
		}
	}
}

func (e *Endpoint) try(ctx context.Context, remote via.Address, local []byte) (via.Remote, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return e.vi.ConnectRequest(ctx, remote, local)
}

// retryable says whether somebody may still come.
func retryable(err error) bool {
	for _, target := range []error{via.ErrTimeout, via.ErrNoMatch, via.ErrNotReachable} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// nobody says what the last attempt met.
func nobody(last error) error {
	switch {
	case errors.Is(last, via.ErrNoMatch):
		return fmt.Errorf("%w: the NIC there is up, but no program waits for this (%w)", ErrNobody, via.ErrTimeout)
	case errors.Is(last, via.ErrNotReachable):
		return fmt.Errorf("%w: %w (%w)", ErrNobody, via.ErrNotReachable, via.ErrTimeout)
	}
	return fmt.Errorf("%w (%w)", ErrNobody, via.ErrTimeout)
}

// settle is the pause after a request that could not be accepted, so that a
// flood of them does not keep a server busy.
const settle = 10 * time.Millisecond

// Listener waits for connections on one connection point of a NIC.
type Listener struct {
	NIC           *via.NIC
	Discriminator []byte
	// Options is given what the other side has and returns what this side wants,
	// or why the request is to be rejected.
	Options func(via.Remote) (Options, error)
	// Refused, if not nil, is told of requests that came to nothing.
	Refused func(via.Remote, error)
}

// Accept waits for a request that can be accepted. Those that cannot are
// rejected; an error means that there is no use in waiting on.
func (l *Listener) Accept(ctx context.Context) (*Endpoint, via.Remote, error) {
	for {
		c, err := l.NIC.ConnectWait(ctx, l.Discriminator)
		if err != nil {
			return nil, via.Remote{}, err
		}
		e, err := l.accept(ctx, c)
		if err == nil {
			return e, c.Remote, nil
		}
		reject(c)
		if errors.Is(err, via.ErrClosed) || errors.Is(err, via.ErrDevice) {
			return nil, c.Remote, err
		}
		if l.Refused != nil {
			l.Refused(c.Remote, err)
		}
		timer := time.NewTimer(settle)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, via.Remote{}, context.Cause(ctx)
		}
	}
}

func (l *Listener) accept(ctx context.Context, c *via.Connection) (*Endpoint, error) {
	o, err := l.Options(c.Remote)
	if err != nil {
		return nil, err
	}
	e, err := New(ctx, l.NIC, o)
	if err != nil {
		return nil, err
	}
	if _, err := c.Accept(ctx, e.vi); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// reject turns a request down unless it has ended by itself.
func reject(c *via.Connection) {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	// An error says that there is nobody left to tell.
	_ = c.Reject(ctx)
}
