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
