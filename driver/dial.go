package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/pause"
)

// DialTimeout limits Dial if its context has no deadline: longer than a program
// takes to start.
const DialTimeout = 30 * time.Second

// How Dial tries: for so long each time, so that a peer that has been started meanwhile is
// asked afresh, and with a pause between that grows.
const (
	dialAttempt    = 2 * time.Second
	dialFirstPause = time.Millisecond
	dialLastPause  = 100 * time.Millisecond
)

// Dial is ConnectRequest that tries again while no program listens at remote, until ctx
// ends, or for DialTimeout if ctx has no deadline. Its error then matches ErrTimeout, and
// ErrNoMatch if the NIC was there and no program listened.
func (e *endpoint) Dial(ctx context.Context, remote Address, local string) (Remote, error) {
	if ctx == nil {
		return Remote{}, e.n.noContext("dial")
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DialTimeout)
		defer cancel()
	}
	retry := dialFirstPause
	var last error // what an attempt met that ctx has not cut short
	for {
		attempt, cancel := context.WithTimeout(ctx, dialAttempt)
		r, err := e.ConnectRequest(attempt, remote, local)
		cancel()
		if err == nil {
			return r, nil
		}
		cause := context.Cause(ctx)
		// A path that is too small does not grow.
		goesOn := is(err, descriptors.ErrTimeout, descriptors.ErrNoMatch, descriptors.ErrNotReachable, context.DeadlineExceeded) && !errors.Is(err, descriptors.ErrPathMTU)
		if cause == nil && !goesOn {
			return r, err
		}
		// An attempt without time says nothing of the other side.
		if last == nil || !is(err, descriptors.ErrTimeout, context.DeadlineExceeded) {
			last = err
		}
		if pause.For(ctx, retry) != nil {
			return r, e.n.notDialled(ctx, remote, last)
		}
		retry = min(2*retry, dialLastPause)
	}
}

// notDialled says why ctx has ended and what the last attempt met.
func (n *NIC) notDialled(ctx context.Context, remote Address, last error) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return n.Fail("dial", fmt.Errorf("%v: %w", remote, cause))
	}
	e := &Error{Op: "dial", Device: n.Address(), Code: descriptors.ErrTimeout, Hint: "start the other side; check the address and both ends' wires"}
	switch {
	case errors.Is(last, descriptors.ErrNoMatch):
		e.Err = fmt.Errorf("%v: %w: the NIC there is up, but no program listens at this name", remote, descriptors.ErrNoMatch)
	case errors.Is(last, descriptors.ErrNotReachable):
		e.Err = fmt.Errorf("%v: %w", remote, descriptors.ErrNotReachable)
	default:
		e.Err = fmt.Errorf("%v: no NIC answered: %w", remote, context.DeadlineExceeded)
	}
	return e
}
