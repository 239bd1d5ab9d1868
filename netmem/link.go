package netmem

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

func (k *link) name() string { return k.address.String() }

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
	k.mu.Lock() // before the line goes: readers must not see a lost line beside the old time
	if k.now.CompareAndSwap(l, nil) {
		k.err, k.away, l.why = err, time.Now(), err
		k.pool.counters.failures.Add(1)
	}
	k.mu.Unlock()
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

// ask asks the server whether it lives, if another one has its pages, too.
func (k *link) ask(ctx context.Context, l *line) error {
	if !k.pool.alone {
		if _, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err != nil && ctx.Err() == nil {
			return k.down(l, err)
		}
	}
	k.opens.try(ctx, l)
	k.pool.attend()
	return nil
}

// dial connects again, and checks that the server is the same.
func (k *link) dial(ctx context.Context) (err error) {
	p := k.pool
	defer func() {
		k.mu.Lock()
		k.err = err
		k.mu.Unlock()
		p.attend()
	}()
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	l, d, err := dialLine(within, p.fabric, k.address, p.options.Timeout)
	if err != nil {
		return err
	}
	if err := p.fits(k, d); err != nil {
		l.close()
		return err
	}
	k.now.Store(l)
	p.changes.tell()
	k.opens.try(ctx, l)
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
