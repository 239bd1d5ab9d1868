package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// comeback tells those who wait that a server is connected again, or is up to date.
type comeback struct {
	mu   sync.Mutex
	next chan struct{}
}

// watch returns what is closed the next time that there is something to tell. Who waits
// calls it before he looks.
func (c *comeback) watch() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

func (c *comeback) tell() {
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

// again returns nil if a call whose last attempt has failed with err shall be made again, and
// else with what it fails. It waits if none of the page's servers that could
// answer is connected yet: until ctx's deadline. Without one it waits for a server until
// that has been away for the timeout, or the call has lasted as long: then the server is
// taken for dead, and nobody waits for it.
func (p *pool) again(ctx context.Context, page uint64, a *attempts, err error) error {
	lost := errors.Is(err, ErrLost)
	restarted := errors.Is(err, ErrRestarted)
	if !lost && !errors.Is(err, ErrUnavailable) || hopeless(err) || restarted && a.restarted {
		return err
	}
	a.restarted = restarted
	_, limited := ctx.Deadline()
	changed := p.comeback.watch()
	since, back := p.expected(page, lost)
	if since.IsZero() && !back {
		return err
	}
	if back && ctx.Err() == nil && (limited || time.Since(a.start) < p.options.Timeout) {
		return nil
	}
	var over <-chan time.Time // if not by ctx
	if !limited {
		until, end := since.Add(p.options.Timeout), a.start.Add(p.options.Timeout)
		timer := time.NewTimer(min(time.Until(until), time.Until(end)))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return &Error{Op: "wait for a server of", Page: int64(page), Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	case <-changed:
		return nil
	case <-over:
	case <-p.ctx.Done():
	}
	return err
}

// hopeless says of an error that a server which has met it will not come back as what it was.
func hopeless(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, ErrOtherPool) || errors.Is(err, ErrOption)
}

// expected says whether one of the page's servers is back: connected, and if the page was
// lost, up to date. Else it says since when that is away which went last, zero if none of
// those that are away will come back. They are looked for at once.
func (p *pool) expected(page uint64, lost bool) (since time.Time, back bool) {
	var room [maxCopies]int
	at := room[:p.placement.Copies()]
	p.placement.Of(page, at)
	for _, n := range at {
		k := p.links[n]
		l, err := k.use()
		switch {
		case l != nil:
			back = back || !k.owes(page) && (!lost || l.trusted.Load())
		case !hopeless(err):
			if away := k.awaySince(); away.After(since) {
				since = away
			}
			k.look()
		}
	}
	return since, back
}
