package netmem

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// link is a server as a client knows it: connected or not, and what it has missed.
type link struct {
	pool    *pool
	address via.Address
	name    string
	now     atomic.Pointer[line] // nil while there is no connection
	wake    chan struct{}        // the keeper looks again

	mu   sync.Mutex
	err  error     // why there is no connection
	away time.Time // since when there is none

	// owed are the pages that have been written while the server was away, a bit each.
	owed []atomic.Uint64
}

// use returns the line if there is one, and else why there is none.
func (k *link) use() (*line, error) {
	if l := k.now.Load(); l != nil {
		return l, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return nil, k.err
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
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// owe notes that the server has missed a page, or is about to, and reports whether that is
// new.
func (k *link) owe(page uint64) bool {
	bit := uint64(1) << (page % 64)
	return k.owed[page/64].Or(bit)&bit == 0
}

func (k *link) paid(page uint64) { k.owed[page/64].And(^(uint64(1) << (page % 64))) }

func (k *link) owes(page uint64) bool { return k.owed[page/64].Load()>>(page%64)&1 != 0 }

// firstOwed is the first page from page on that is owed.
func (k *link) firstOwed(page uint64) (uint64, bool) {
	for i := page / 64; i < uint64(len(k.owed)); i++ {
		w := k.owed[i].Load()
		if i == page/64 {
			w &= ^uint64(0) << (page % 64)
		}
		if w != 0 {
			return i*64 + uint64(bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

// How a server that is away is looked for: at growing intervals.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// keep connects the link again whenever it is down, and brings the server up to date,
// until ctx ends.
func (k *link) keep(ctx context.Context) {
	wait := firstRetry
	for {
		l := k.now.Load()
		if l == nil {
			var err error
			if l, err = k.dial(ctx); err != nil {
				k.mu.Lock()
				k.err = err
				k.mu.Unlock()
			} else {
				wait = firstRetry
			}
		}
		again := time.Duration(1<<63 - 1)
		if l == nil || !k.bringUpToDate(ctx, l) {
			again, wait = wait, min(2*wait, lastRetry)
		}
		k.pool.comeback.tell()
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			if l := k.now.Swap(nil); l != nil {
				l.close()
			}
			return
		case <-timer.C:
		case <-k.wake: // somebody waits for it
			timer.Stop()
			wait = firstRetry
		}
	}
}

// dial connects again, and checks that the server still is what it was.
func (k *link) dial(ctx context.Context) (*line, error) {
	p := k.pool
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	l, d, err := dialLine(within, p.nic, k.address, p.options.Depth, p.options.Timeout)
	if err != nil {
		return nil, err
	}
	if err := p.fits(k, d); err != nil {
		l.close()
		return nil, err
	}
	if d.Pool != p.number && p.alone() && p.lasting {
		// A file is what it was, but old versions must not be met again. Nobody reads or
		// writes before it has new ones.
		d, err = l.join(within, p.number, Version(time.Now().UnixNano()))
		if err != nil {
			l.close()
			return nil, err
		}
	}
	l.trusted.Store(d.Pool == p.number)
	k.now.Store(l)
	p.comeback.tell()
	return l, nil
}

// fits says what is wrong with what a server lends now.
func (p *pool) fits(k *link, d protocol.Description) error {
	switch {
	case int(d.Page) != p.page || d.Span/uint64(d.Page) != p.pages:
		return &Error{Op: "connect", Page: -1, Server: k.name, Err: optionError("what is lent", fmt.Sprintf("%d bytes by pages of %d", d.Span, d.Page),
			fmt.Sprintf("%d bytes by pages of %d, as at the other servers", p.pages*uint64(p.page), p.page))}
	case d.Pool != 0 && d.Pool != p.number:
		return &Error{Op: "connect", Page: -1, Server: k.name, Err: ErrOtherPool, Hint: "another client has begun anew with it; restart the servers, or open another client"}
	}
	return nil
}
