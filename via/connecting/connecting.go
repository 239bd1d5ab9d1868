// Package connecting is how applications connect, whatever it is that they connect: it asks
// again while nobody listens yet, and it listens without letting one client keep another
// waiting. Packages via and ring stand on it.
package connecting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
)

// How Dial tries: for so long each time, so that a peer that has been started
// meanwhile is asked afresh, and with a pause between that grows.
const (
	attempt    = 2 * time.Second
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// Patience is how long Dial tries if its context has no deadline: longer than a program
// takes to start.
const Patience = 30 * time.Second

// Dial calls try, which asks at address to be connected, until it succeeds, fails with what
// another attempt would not mend, or ctx ends, or Patience if ctx has no deadline: then the
// error matches ErrTimeout, and ErrNoMatch if the NIC was there and nobody listened. device
// and address are for errors.
func Dial(ctx context.Context, device string, address driver.Address, try func(context.Context) (driver.Remote, error)) (driver.Remote, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	pause := firstPause
	var last error // what an attempt met that ctx has not cut short
	for {
		r, err := attemptOne(ctx, try)
		if err == nil {
			return r, nil
		}
		cause := context.Cause(ctx)
		if cause == nil && !errors.Is(err, driver.ErrTimeout) && !errors.Is(err, driver.ErrNoMatch) && !unreachable(err) {
			return r, err
		}
		if last == nil || !errors.Is(err, driver.ErrTimeout) {
			last = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			timer.Stop()
			return r, nobody(ctx, device, address, last)
		}
	}
}

func attemptOne(ctx context.Context, try func(context.Context) (driver.Remote, error)) (driver.Remote, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return try(ctx)
}

// unreachable reports whether the remote NIC could not be reached. A path that is too
// small does not grow.
func unreachable(err error) bool {
	return errors.Is(err, driver.ErrNotReachable) && !errors.Is(err, driver.ErrPathMTU)
}

// nobody says why ctx has ended and what the last attempt met.
func nobody(ctx context.Context, device string, address driver.Address, last error) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return driver.NewError("dial", device, fmt.Errorf("%v: %w", address, cause))
	}
	e := &driver.Error{Op: "dial", Device: device, Code: driver.ErrTimeout, Hint: "start the other side; check the address and both ends' wires"}
	switch {
	case errors.Is(last, driver.ErrNoMatch):
		e.Err = fmt.Errorf("%v: %w: the NIC there is up, but no program listens at this name", address, driver.ErrNoMatch)
	case errors.Is(last, driver.ErrNotReachable):
		e.Err = fmt.Errorf("%v: %w", address, driver.ErrNotReachable)
	default:
		e.Err = fmt.Errorf("%v: no NIC answered: %w", address, context.DeadlineExceeded)
	}
	return e
}
