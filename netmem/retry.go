package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// changes tells the calls that wait that a server is connected again, or the configuration has changed.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
}

// watch returns what is closed the next time that there is something to tell. Who waits
// calls it before he looks.
func (c *changes) watch() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// attempts are those of one call.
type attempts struct {
	start time.Time
	// restarted: a server has said that it is another one. One that says so again, after a
	// new connection, does not mean it.
	restarted bool
}

// retry returns nil if a call is to be made once more, else with what it fails: its last attempt,
// with view v, has failed with err. It waits for something to change, until ctx's deadline. Without
// one it waits until a server that is needed has been away for the timeout, and the pool had the
// time to go on without it.
func (p *pool) retry(ctx context.Context, v *view, page uint64, a *attempts, err error) error {
	changed := p.changes.watch()
	restarted := errors.Is(err, ErrRestarted)
	switch {
	case errors.Is(err, errChanged), p.view.Load() != v:
		return ctx.Err()
	case !errors.Is(err, ErrUnavailable) || hopeless(err) || restarted && a.restarted:
		return err
	}
	a.restarted = restarted
	limit := p.options.Timeout
	if !p.alone {
		limit = 2*limit + 4*lease
	}
	var room [maxCopies]*link
	list, _ := p.places(v, page, room[:0])
	for _, k := range list {
		if k.now.Load() != nil {
			continue
		}
		switch {
		case !p.alone:
		case hopeless(k.why()):
			return err
		case time.Since(k.awaySince()) > limit:
			a.start = a.start.Add(-limit) // it is dead: the call does not wait for it
		}
		k.look()
	}
	wait := lastRetry
	if _, limited := ctx.Deadline(); !limited {
		if wait = min(wait, limit-time.Since(a.start)); wait <= 0 {
			return p.blame(err)
		}
	}
	select {
	case <-ctx.Done():
		return &Error{Op: onPage("wait for a server of", page), Err: fmt.Errorf("%w: %w", ctx.Err(), p.blame(err))}
	case <-changed:
	case <-time.After(wait):
	case <-p.ctx.Done():
		return err
	}
	return nil
}

// blame adds to an error what the store has said, if the pool waits for it.
func (p *pool) blame(err error) error {
	if s := p.storeError(); s != nil && errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w; %w", err, s)
	}
	return err
}

// hopeless says of an error that a server which has met it will not come back as what it was.
func hopeless(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, ErrOtherPool) || errors.Is(err, ErrOption)
}
