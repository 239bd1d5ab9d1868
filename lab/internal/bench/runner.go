package bench

import (
	"context"
	"time"
)

// Progress is called after each part of a measurement; nil calls nothing.
type Progress func()

// Step calls p.
func (p Progress) Step() {
	if p != nil {
		p()
	}
}

// Rounds calls f for about d, and at least so many times, until ctx ends.
func Rounds(ctx context.Context, d time.Duration, least int, f func() error) error {
	for end, i := time.Now().Add(d), 0; i < least || time.Now().Before(end); i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// OnCore runs f on a thread of its own, which is pinned to core unless that is
// negative. Goroutines that f starts run elsewhere. An error after the end of ctx is its cause.
func OnCore(ctx context.Context, core int, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with the goroutine, and no other one inherits
		// where it may run.
		if err := pin(core); err != nil {
			ended <- err
			return
		}
		ended <- f()
	}()
	return caused(ctx, <-ended)
}

// caused is err, or the cause of ctx's end if both have happened.
func caused(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// lookPause is the pause between two looks for something that another process makes.
const lookPause = 5 * time.Millisecond

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	return receive(ctx, time.After(d))
}

// receive waits until c has something, or ctx ends.
func receive[T any](ctx context.Context, c <-chan T) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
