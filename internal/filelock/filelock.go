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
func Lock(ctx context.Context, fd int) error { return lock(ctx, fd, unix.LOCK_EX) }

// Share locks it as Lock does, but others may share it at the same time.
func Share(ctx context.Context, fd int) error { return lock(ctx, fd, unix.LOCK_SH) }

func lock(ctx context.Context, fd, how int) error {
	for {
		err := unix.Flock(fd, how|unix.LOCK_NB)
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
