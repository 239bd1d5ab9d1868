package driver

import (
	"context"
	"time"
)

// A device in another process may stop answering, and most of what it is asked takes
// no context. Its back end gives it up after the first request that it has not
// answered in time; what follows is for callers whose context ends before.

// unansweredFor is the time that a remote device has not answered when callers who are
// about to leave ask it for nothing more.
const unansweredFor = 500 * time.Millisecond

// unanswering reports whether a remote device has not answered for that long to
// a call that waits.
func (n *NIC) unanswering() bool {
	since := n.checking.Load()
	return since != 0 && time.Since(n.opened)-time.Duration(since) > unansweredFor
}

// bound calls f. If ctx ends before f does, and f does not return within grace
// either, a remote device is given up, which ends f.
func (n *NIC) bound(ctx context.Context, grace time.Duration, f func() error) error {
	if n.remote == nil {
		return f()
	}
	returned, decided := make(chan struct{}), make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-returned:
			decided <- nil
		case <-timer.C:
			n.remote.GiveUp(ctx.Err())
			decided <- ctx.Err()
		}
	})
	err := f()
	close(returned)
	if !stop() {
		if gaveUp := <-decided; err == nil {
			err = gaveUp
		}
	}
	return err
}
