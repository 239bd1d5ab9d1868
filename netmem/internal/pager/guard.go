package pager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// hungAfter is the number of deadlines without a word of the pager; it says that it is alive several
// times in each.
const hungAfter = 2

// wakes is the time between two wake-ups of threads that may wait, after the end. See Memory.End.
const wakes = 50 * time.Millisecond

var (
	// ErrDied: the pager's process has ended.
	ErrDied = errors.New("the pager has died")
	// ErrHung: the pager's process is there, and does nothing.
	ErrHung = errors.New("the pager does nothing any more")
)

// guard ends the memory when the pager has died, of which it learns by the end of a pipe
// that the pager alone writes to, or when the pager has not answered for too long. It returns when the mapper has closed
// the link, with what it could not tell it.
func guard(ctx context.Context, l *Link, m *Memory, life *os.File, deadline time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		// Only the end of the link comes.
		_, _, _ = l.Receive(time.Time{})
	}()
	defer context.AfterFunc(ctx, func() { _ = life.SetReadDeadline(time.Unix(1, 0)) })()
	if err := l.Send(Message{Kind: KindReady}, time.Now().Add(linkTimeout)); err != nil {
		return err
	}
	reason := watchLife(ctx, life, hungAfter*deadline)
	if reason == nil {
		return nil
	}
	err := errors.Join(reason, m.End())
	if l.Send(Message{Kind: KindFailed, Failure: NewFailure(err)}, time.Now().Add(linkTimeout)) == nil {
		err = nil // the mapper says it
	}
	for ctx.Err() == nil {
		_ = m.End() // what can fail has been told
		select {
		case <-ctx.Done():
		case <-time.After(wakes):
		}
	}
	return err
}

// watchLife returns why the pager is no more, or nil when ctx has ended.
func watchLife(ctx context.Context, life *os.File, limit time.Duration) error {
	var b [64]byte
	missing := 0
	for {
		// Two halves: a machine that was asleep wakes with both processes late, and the
		// pager has a chance to go first.
		if err := life.SetReadDeadline(time.Now().Add(limit / 2)); err != nil {
			return fmt.Errorf("watch the pager: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		_, err := life.Read(b[:])
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			missing = 0
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return ErrDied
		default:
			if missing++; missing == 2 {
				return fmt.Errorf("%w, for %v", ErrHung, limit)
			}
		}
	}
}
