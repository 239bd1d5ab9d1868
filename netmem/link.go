package netmem

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// link is a server as a client knows it: connected or not.
type link struct {
	pool    *pool
	address via.Address
	number  int                  // in configurations of the pool
	now     atomic.Pointer[line] // nil while there is no connection
	wake    chan struct{}        // the keeper looks again

	mu   sync.Mutex
	err  error     // why there is no connection
	away time.Time // since when there is none
}

// name is the server's, for errors.
func (k *link) name() string { return k.address.String() }

// why says why there is no line.
func (k *link) why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil { // it never failed
		return ErrClosed
	}
	return k.err
}

// down ends a line that has failed, and returns why it has: err, or what another call met
// first. When it returns, the frames of its calls can be used for others.
func (k *link) down(l *line, err error) error {
	if k.now.CompareAndSwap(l, nil) {
		k.mu.Lock()
		k.err, k.away, l.why = err, time.Now(), err
		k.mu.Unlock()
		k.pool.counters.failures.Add(1)
	}
	l.close()
	k.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.why == nil { // the client is being closed
		return err
	}
	return l.why
}

func (k *link) awaySince() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away
}

// look has the keeper look after the link.
func (k *link) look() {
	notify(k.wake)
}

// How a server that is away is looked for: at growing intervals.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// keep connects the link again whenever it is down, and asks the server now and then whether it
// lives, until ctx ends.
func (k *link) keep(ctx context.Context) {
	wait := firstRetry
	var opens opening
	for {
		next, wake := heartbeat, k.wake
		if l := k.now.Load(); l == nil {
			next, wait = wait, min(2*wait, lastRetry)
			if err := k.dial(ctx); err != nil {
				k.mu.Lock()
				k.err = err
				k.mu.Unlock()
				if next == firstRetry {
					wake = nil // calls that wait ask again at once
				}
			} else {
				next, wait = heartbeat, firstRetry
			}
		} else if !k.pool.alone {
			if _, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err != nil && ctx.Err() == nil {
				k.down(l, err)
				next = firstRetry
			}
		}
		if l := k.now.Load(); l != nil {
			opens.try(ctx, l)
		}
		k.pool.attend()
		select {
		case <-ctx.Done():
			if l := k.now.Swap(nil); l != nil {
				l.close()
			}
			return
		case <-time.After(next):
		case <-wake: // a call waits for it
			wait = firstRetry
		}
	}
}

// dial connects again, and checks that the server is the same.
func (k *link) dial(ctx context.Context) error {
	p := k.pool
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	l, d, err := dialLine(within, p.fabric, k.address, p.options.Depth, p.options.Timeout)
	if err != nil {
		return err
	}
	if err := p.fits(k, d); err != nil {
		l.close()
		return err
	}
	k.now.Store(l)
	p.changes.tell()
	return nil
}

// fits says what is wrong with what a server lends now.
func (p *pool) fits(k *link, d protocol.Description) error {
	fail := func(err error, hint string) error {
		return &Error{Op: "connect", Device: k.name(), Err: err, Hint: hint}
	}
	switch v := p.view.Load(); {
	case int(d.Page) != p.page || d.Span/uint64(d.Page) != p.pages:
		return fail(optionError("what is lent", fmt.Sprintf("%d bytes by pages of %d", d.Span, d.Page),
			fmt.Sprintf("%d bytes by pages of %d, as at the other servers", p.pages*uint64(p.page), p.page)), "")
	case d.Pool != 0 && d.Members != p.members:
		return fail(ErrOtherPool, "all clients name the same servers and copies; restart the servers to use them in another way")
	case d.Pool != 0 && d.Pool != v.Pool:
		return fail(ErrOtherPool, "another client has begun anew with it; restart the servers, or open another client")
	}
	return nil
}
