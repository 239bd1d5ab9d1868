package netmem

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// openPool connects with servers, stays connected until close, and fills in the defaults of o.
func openPool(ctx context.Context, nic *via.NIC, f fabric, servers []via.Address, o *Options) (*pool, error) {
	if err := o.check(len(servers)); err != nil {
		return nil, err
	}
	p := &pool{nic: nic, fabric: f, options: *o, alone: o.Copies == 1, client: draw(),
		wake: make(chan struct{}, 1), stale: make(chan struct{}, 1), asking: make(chan struct{}, 1)}
	p.view.Store(&view{})
	var names []string
	for _, a := range servers {
		p.links = append(p.links, &link{keeper: newKeeper(), pool: p, address: a, away: time.Now()})
		names = append(names, a.String())
	}
	var err error
	if p.placement, err = placement.New(names, o.Copies); err != nil {
		return nil, &Error{Op: "place pages", Err: fmt.Errorf("%w: %w", ErrOption, err)}
	}
	p.number(names)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err = p.connect(ctx); err == nil {
		err = p.start()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// number gives the links the numbers that they have in configurations: the order of their names.
func (p *pool) number(names []string) {
	p.names = slices.Sorted(slices.Values(names))
	digest := fnv.New64a()
	for _, name := range p.names {
		digest.Write([]byte(name)) // it never fails
		digest.Write([]byte{0, byte(p.options.Copies)})
	}
	p.members = digest.Sum64()
	for _, k := range p.links {
		k.number = slices.Index(p.names, k.name())
	}
}

// othersLater is the time after the first server of a pool by which others may answer a new client.
// Their keepers connect with those that are later.
const othersLater = time.Second

// connect connects with all servers, and makes them a pool if they are none yet.
func (p *pool) connect(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	found := make([]protocol.Description, len(p.links))
	lines := make([]*line, len(p.links))
	var wait sync.WaitGroup
	var first sync.Once
	var late *time.Timer // ends the wait for the others
	for i, k := range p.links {
		wait.Go(func() {
			lines[i], found[i], k.err = dialLine(within, p.fabric, k.address, p.options.Timeout)
			if k.err == nil && found[i].Pool != 0 && !p.alone {
				first.Do(func() { late = time.AfterFunc(othersLater, cancel) })
			}
		})
	}
	wait.Wait()
	if late != nil {
		late.Stop()
	}
	if err := p.agree(ctx, lines, found); err != nil {
		for _, l := range lines {
			if l != nil {
				l.close()
			}
		}
		return err
	}
	for i, k := range p.links {
		if l := lines[i]; l != nil {
			k.now.Store(l)
		} else {
			k.away = time.Now()
		}
	}
	return nil
}

// agree finds out which pool the servers are, or makes them one.
func (p *pool) agree(ctx context.Context, lines []*line, found []protocol.Description) error {
	var away error
	var c placement.Configuration
	for i, k := range p.links {
		switch d := found[i]; {
		case lines[i] == nil:
			away = &Error{Op: "connect", Device: k.name(), Err: k.err}
		case p.page == 0:
			p.page, p.pages = int(d.Page), d.Span/uint64(d.Page)
			fallthrough
		default:
			p.readOnly = p.readOnly || d.ReadOnly
			if p.alone && c.Pool == 0 && d.Pool != 0 {
				c = placement.Configuration{Pool: d.Pool, Epoch: d.Epoch, Base: d.Base}
			}
		}
	}
	if p.page == 0 {
		return &Error{Op: "connect", Err: fmt.Errorf("%w: %w", ErrUnavailable, away)}
	}
	var err error
	asked, revision := time.Now(), int64(0)
	if !p.alone {
		if c, revision, err = p.get(ctx); err != nil {
			return asError("connect", err)
		}
	}
	if c.Pool == 0 {
		if away != nil {
			return &Error{Op: "connect", Err: errors.Join(ErrUnavailable, away),
				Hint: "these servers have not been used together yet, or have restarted: all of them must run for the first client"}
		}
		c = placement.Configuration{Pool: draw(), Epoch: 1, Base: uint64(time.Now().UnixNano()), Copies: p.options.Copies}
		if asked = time.Now(); p.alone {
			c, err = p.create(ctx, lines, c)
		} else {
			c, revision, err = p.configure(ctx, lines, c)
		}
		if err != nil {
			return asError("connect", err)
		}
	}
	if err := p.learn(c, revision, asked); err != nil {
		return err
	}
	for i, k := range p.links {
		if lines[i] != nil {
			if err := p.fits(k, found[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// create tells new servers their pool, unless another client is faster: the first one decides.
func (p *pool) create(ctx context.Context, lines []*line, c placement.Configuration) (placement.Configuration, error) {
	c.Copies = 0
	for n := range lines { // in the order of their numbers
		l := lines[slices.IndexFunc(p.links, func(k *link) bool { return k.number == n })]
		err := l.adopt(ctx, protocol.Record{Pool: c.Pool, Epoch: c.Epoch, Base: c.Base, Members: p.members}, c.Epoch, false)
		if errors.Is(err, ErrOtherPool) && n == 0 {
			if _, err = l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err == nil && l.record.Load().Members == p.members {
				r := l.record.Load()
				c.Pool, c.Epoch, c.Base = r.Pool, r.Epoch, r.Base
			} else if err == nil {
				err = ErrOtherPool
			}
		}
		if err != nil {
			return c, &Error{Op: "connect", Device: l.to.String(), Err: err}
		}
	}
	return c, nil
}

// configure puts the first configuration of new servers into the store, unless another client is faster.
func (p *pool) configure(ctx context.Context, lines []*line, c placement.Configuration) (placement.Configuration, int64, error) {
	c.Servers = make([]placement.Server, len(lines))
	for i, k := range p.links {
		if !lines[i].blank() {
			return c, 0, &Error{Op: "connect", Device: k.name(), Err: ErrOtherPool, Hint: "its pool is not in the store any more: restart the servers"}
		}
		c.Servers[k.number] = placement.Server{Name: k.name(), Incarnation: lines[i].incarnation, Since: c.Epoch}
	}
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	if err := p.options.Store.Swap(within, c.Encode(), 0); err != nil {
		return c, 0, fmt.Errorf("%w: %w", ErrNoStore, err)
	}
	c, revision, err := p.get(ctx)
	if err == nil && revision == 0 {
		err = fmt.Errorf("%w: it has not kept the configuration", ErrNoStore)
	}
	return c, revision, err
}

func (p *pool) start() error {
	var err error
	if p.scratch, err = newRooms(p.ctx, p.fabric, len(p.links), p.page); err != nil {
		return err
	}
	for _, k := range p.links {
		p.running.Go(func() { k.keep(p.ctx, heartbeat, k.dial, k.ask) })
	}
	if !p.alone {
		p.running.Go(func() { p.watch(p.ctx) })
		p.running.Go(func() { p.tend(p.ctx) })
	}
	return nil
}

func (p *pool) close() error {
	p.cancel()
	p.running.Wait()
	if p.scratch == nil {
		return nil
	}
	return p.fabric.free(p.scratch.memory)
}
