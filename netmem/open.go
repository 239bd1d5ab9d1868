package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// Stats returns what has been counted.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	s := c.stats
	s.Median = percentile(c.latency, 50)
	s.P99 = percentile(c.latency, 99)
	s.HostMedian, s.HostP99 = percentile(c.near, 50), percentile(c.near, 99)
	s.Kept = uint64(c.guests)
	c.mu.Unlock()
	if c.lodging != nil {
		s.Given = c.lodging.server.counters.fetches.Load()
	}
	if c.cooperation != nil {
		c.cooperation.stats(&s)
	}
	n := &c.pool.counters
	s.Fetches, s.Direct, s.Writes, s.Failures = n.fetches.Load(), n.direct.Load(), n.writes.Load(), n.failures.Load()
	s.Failovers, s.Repaired = n.failovers.Load(), n.repaired.Load()
	v := c.pool.view.Load()
	for _, k := range c.pool.links {
		l, err := k.now.Load(), error(nil)
		if l == nil {
			err = k.why()
		}
		complete := l != nil && v.has(k) && (v.Servers == nil || v.Servers[k.number].Member())
		s.Servers = append(s.Servers, ServerState{k.name(), l != nil, complete, err})
	}
	return s
}

// Open connects with servers, which lend the same span by pages of the same size. Their addresses
// are as via.Dial has them, and a name stands for all that have it (via.NIC.ResolveAll). Which
// servers they are is fixed when the first client makes them a pool, and needs all of them. Others,
// with Copies above 1, need those that are left, and wait a second for the rest once one has
// answered. The NIC stays open when the client is closed. Errors: ErrOption, ErrUnavailable, ErrOtherPool.
func Open(ctx context.Context, nic *via.NIC, servers []string, o Options) (*Client, error) {
	if err := nic.Check("open network memory"); err != nil {
		return nil, err
	}
	if o.Cooperation != nil {
		with := *o.Cooperation
		var err error
		if with.addresses, err = resolve(ctx, nic, with.Hosts); err != nil {
			return nil, err
		}
		o.Cooperation = &with
	}
	p, err := openServers(ctx, nic, servers, &o)
	return begin(ctx, p, o, err)
}

func openServers(ctx context.Context, nic *via.NIC, servers []string, o *Options) (*pool, error) {
	addresses, err := resolve(ctx, nic, servers)
	if err != nil {
		return nil, err
	}
	return openPool(ctx, nic, onNIC{nic}, addresses, o)
}

// resolve reads the addresses of servers. A name may stand for several.
func resolve(ctx context.Context, nic *via.NIC, servers []string) (list []via.Address, err error) {
	for _, s := range servers {
		all, err := nic.ResolveAll(ctx, s)
		switch {
		case errors.Is(err, via.ErrInvalidParameter):
			return nil, optionError("a server", fmt.Sprintf("%q", s), "MAC/NAME and HOST:NAME")
		case err != nil:
			return nil, &Error{Op: "connect", Device: s, Err: err}
		}
		list = append(list, all...)
	}
	return list, nil
}

// begin makes the client of a pool, unless opening that has failed.
func begin(ctx context.Context, p *pool, o Options, err error) (*Client, error) {
	if err != nil {
		return nil, err
	}
	c := &Client{pool: p, options: o, page: p.page, latency: newLatencies(), near: newLatencies()}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// start makes the cache and the goroutines behind it.
func (c *Client) start(ctx context.Context) error {
	frames := int(c.options.Cache / int64(c.page))
	if frames < leastFrames {
		return optionError("Cache", c.options.Cache, fmt.Sprintf("at least %d", leastFrames*c.page))
	}
	m, err := c.pool.fabric.alloc(ctx, frames*c.page, via.MemoryAttributes{})
	if err != nil {
		return &Error{Op: fmt.Sprintf("allocate a cache of %d bytes", c.options.Cache), Err: err}
	}
	c.memory = m
	c.cache.init(frames)
	c.changed = sync.NewCond(&c.mu)
	c.ahead.Window = (min(c.options.ReadAhead/c.page, frames/4) + 1) / 2 // two windows are ahead of a reader at most
	c.jobs = make(chan job, 4*c.options.workers)
	for range c.options.workers {
		c.workers.Go(c.work)
	}
	if o := c.options.Cooperation; o != nil {
		return c.cooperate(ctx, o)
	}
	return nil
}

// Close writes back what has been written, as Sync does, and ends the client. It ends also
// if that fails; what is then not written is lost. A second Close returns nil.
func (c *Client) Close() error {
	err := c.Sync() // of a client that is closed it fails at once
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.changed.Broadcast()
	for c.asking > 0 {
		c.changed.Wait()
	}
	c.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(err, c.stop())
}

func (c *Client) stop() (err error) {
	if c.lodging != nil {
		err = c.lodging.server.Close()
	}
	if c.jobs != nil {
		close(c.jobs)
		c.workers.Wait()
		c.quiet()
	}
	if err = errors.Join(err, c.pool.close()); c.memory != nil {
		err = errors.Join(err, c.pool.fabric.free(c.memory))
	}
	return err
}

// ServerInfo describes the memory that a server lends, and has its counts.
type ServerInfo struct {
	// All in bytes; Capacity bounds what can be stored.
	Page     int   `json:"page_bytes"`
	Span     int64 `json:"span_bytes" help:"how far addresses reach"`
	Capacity int64 `json:"capacity_bytes"`
	// ReadOnly: clients may not write.
	ReadOnly bool `json:"read_only"`
	// Incarnation tells it from itself before a restart, and Pool is the number that it
	// shares with the servers that it was first used with; zero if it has not been.
	Incarnation, Pool uint64      `json:"-"`
	Stats             ServerStats `json:"-"`
}

// Ask asks a server what it lends and what it has counted. It takes timeout at most.
func Ask(ctx context.Context, nic *via.NIC, server string, timeout time.Duration) (ServerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	at, err := resolve(ctx, nic, []string{server})
	if err != nil {
		return ServerInfo{}, err
	}
	fail := func(err error) (ServerInfo, error) {
		return ServerInfo{}, &Error{Op: "ask", Device: at[0].String(), Err: err}
	}
	l, d, err := dialLine(ctx, onNIC{nic}, at[0], timeout)
	if err != nil {
		return fail(errors.Join(ErrUnavailable, err))
	}
	defer l.close()
	b, err := l.ask(ctx, protocol.Stat)
	if err != nil {
		return fail(err)
	}
	counters, err := protocol.ParseCounters(b)
	if err != nil {
		return fail(err)
	}
	return ServerInfo{
		Page: int(d.Page), Span: int64(d.Span), Capacity: int64(d.Capacity), ReadOnly: d.ReadOnly,
		Incarnation: l.incarnation, Pool: d.Pool, Stats: counters,
	}, nil
}
