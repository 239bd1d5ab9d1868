// Package filelock locks files between processes (flock(2)).
package filelock

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// pause is between two attempts.
const pause = 2 * time.Millisecond

// Lock locks the open file fd for this process alone, until the file is closed. It
// waits while others have it, and fails with the cause of ctx, or with an errno where
// there are no locks.
func Lock(ctx context.Context, fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
