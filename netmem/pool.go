package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// pool is the servers of a client together: where pages are, and how they are fetched and
// written there.
type pool struct {
	nic       *via.NIC // for hosts
	fabric    fabric
	options   Options
	links     []*link
	placement *placement.Placement
	page      int    // bytes
	pages     uint64 // that are lent
	alone     bool   // no server holds copies for another
	readOnly  bool
	names     []string // of the servers, by their numbers
	members   uint64   // Record.Members
	client    uint64
	newest    atomic.Uint64 // version that a write built on nothing was refused for
	view      atomic.Pointer[view]
	wake      chan struct{} // the configuration may have to be changed
	stale     chan struct{} // it has been
	asking    chan struct{} // full while the store is asked
	differs   atomic.Bool   // two copies of a page do

	storeErr atomic.Pointer[error] // what the store has said last, for the errors of calls that wait for it
	counters poolCounters
	changes  changes

	scratch *rooms // for pages on their way from one server to another

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

type poolCounters struct {
	fetches, direct, begun, writes, failures, failovers, repaired atomic.Uint64
}

func unavailable(op string, page uint64, last error) error {
	err := ErrUnavailable
	if last != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, last)
	}
	return &Error{Op: onPage(op, page), Err: err, Hint: "start the server again; with copies the others go on without it"}
}

// only returns the server of a page that has no copies.
func (p *pool) only(page uint64) *link {
	if len(p.links) == 1 {
		return p.links[0]
	}
	var at [1]int
	p.placement.Of(page, at[:])
	return p.links[at[0]]
}

// link is a server as a client knows it: connected or not.
type link struct {
	keeper
	pool    *pool
	address via.Address
	number  int // in configurations of the pool

	mu   sync.Mutex
	err  error     // why there is no connection
	away time.Time // since when there is none
}

// lease is for how long a client takes a configuration for the pool's after it has asked the store for it. One that
// knows a later configuration, without a member, waits for as long before it reads or writes.
const lease = time.Second

// heartbeat is the time between two questions to the store, and to each server.
const heartbeat = lease / 3

// view is a configuration as a client uses it. Of a pool without copies it has no servers.
type view struct {
	placement.Configuration
	revision int64 // of the store
	opened   time.Time
	named    atomic.Pointer[time.Time] // when the store was asked that has named it last
	// after that time no client reads from a member that has gone.
	after time.Time
	ready atomic.Bool // it is settled
}

func (p *pool) attend() { notify(p.wake) }

// hurry has the store asked at once: a server knows another configuration.
func (p *pool) hurry() { notify(p.stale) }

// errChanged: the configuration of the pool has changed during an attempt. The call tries again.
var errChanged = errors.New("the record of the pool has changed")

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
	l.tryWindow(ctx)
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
	l.tryWindow(ctx)
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
