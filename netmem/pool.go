package netmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/netmem/placement"
	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// maxCopies bounds Options.Copies.
const maxCopies = 8

// pool is the servers of a client together: where pages are, and how they are fetched and
// written there.
type pool struct {
	nic       *via.NIC
	options   Options
	links     []*link
	placement *placement.Placement
	page      int    // bytes
	pages     uint64 // that are lent
	lasting   bool
	readOnly  bool
	number    uint64 // of the pool
	base      Version
	client    uint64
	counters  poolCounters
	comeback  comeback

	scratchMemory *via.Memory
	scratches     chan int

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

type poolCounters struct {
	fetches, writes, failures, failovers, repaired atomic.Uint64
}

// openPool connects with servers, and fills in the defaults of o.
func openPool(ctx context.Context, nic *via.NIC, servers []via.Address, o *Options) (*pool, error) {
	if err := o.check(len(servers)); err != nil {
		return nil, err
	}
	p := &pool{nic: nic, options: *o, client: draw()}
	var names []string
	for _, a := range servers {
		p.links = append(p.links, &link{pool: p, address: a, name: a.String(), wake: make(chan struct{}, 1)})
		names = append(names, a.String())
	}
	var err error
	if p.placement, err = placement.New(names, o.Copies); err != nil {
		return nil, fmt.Errorf("netmem: %w: %w", ErrOption, err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.connect(ctx); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// target is a server of a page that can be used now.
type target struct {
	link *link
	line *line
	// whole: the server has the newest version of the page.
	whole bool
}

// targets puts the servers of a page that are connected into into: those that have it
// first, each in the order of the placement. The error is of the last that is not
// connected.
func (p *pool) targets(page uint64, into []target) ([]target, error) {
	var places [maxCopies]int
	at := places[:p.placement.Copies()]
	p.placement.Of(page, at)
	var away error
	for _, whole := range [...]bool{true, false} {
		for _, n := range at {
			k := p.links[n]
			l, err := k.use()
			if l == nil {
				away = &Error{Op: "reach", Page: -1, Server: k.name, Err: err}
				continue
			}
			if (l.trusted.Load() && !k.owes(page)) == whole {
				into = append(into, target{k, l, whole})
			}
		}
	}
	return into, away
}

// alone says that no server holds copies for another.
func (p *pool) alone() bool { return p.placement.Copies() == 1 }

// fetch fetches a part of a page into a frame, from the first server that has it and
// answers. It waits for servers that are connecting again.
func (p *pool) fetch(ctx context.Context, page uint64, offset int, into ring.Frame) (Version, error) {
	a := attempts{start: time.Now()}
	for {
		r, err := p.fetchFrom(ctx, page, offset, into, nil)
		if err == nil {
			return Version(r.Version), nil
		}
		if err := p.again(ctx, page, &a, err); err != nil {
			return 0, err
		}
	}
}

// fetchFrom is one attempt at that, with other servers than one. It waits for none.
func (p *pool) fetchFrom(ctx context.Context, page uint64, offset int, into ring.Frame, not *link) (protocol.Reply, error) {
	var room [maxCopies]target
	list, last := p.targets(page, room[:0])
	lost := false
	for i, t := range list {
		if t.link == not || t.link.owes(page) { // what it has is old
			continue
		}
		r, err := t.line.fetch(ctx, page, offset, into)
		switch {
		case err != nil:
			if ctx.Err() != nil { // it was the caller who gave up, and not the server
				err = ctx.Err()
			}
			err = t.link.down(t.line, err)
			last = &Error{Op: "fetch", Page: int64(page), Server: t.link.name, Err: err}
			if ctx.Err() != nil {
				return r, last
			}
			p.counters.failovers.Add(1)
		case r.Result != protocol.OK:
			return r, &Error{Op: "fetch", Page: int64(page), Server: t.link.name, Err: refusal(r.Result)}
		case r.Flags&protocol.Unwritten != 0 && !t.whole && !p.joined(ctx, t.line):
			lost = true
		default:
			if i > 0 {
				p.counters.failovers.Add(1)
			}
			p.counters.fetches.Add(1)
			return r, nil
		}
	}
	if lost {
		return protocol.Reply{}, &Error{Op: "fetch", Page: int64(page), Err: ErrLost}
	}
	return protocol.Reply{}, unavailable("fetch", page, last)
}

// joined asks a server that is not trusted whether somebody else has brought it up to date
// meanwhile.
func (p *pool) joined(ctx context.Context, l *line) bool {
	if !l.trusted.Load() {
		d, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe})
		if err != nil || d.Pool != p.number {
			return false
		}
		l.trusted.Store(true)
	}
	return true
}

func unavailable(op string, page uint64, last error) error {
	err := ErrUnavailable
	if last != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, last)
	}
	return &Error{Op: op, Page: int64(page), Err: err, Hint: "start the server again; with copies=2 the death of one does no harm"}
}

// othersLater is how much later than the first server of a pool the others may answer a new
// client that does not need all of them. Their keepers connect with those that are later.
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
			lines[i], found[i], k.err = dialLine(within, p.nic, k.address, p.options.Depth, p.options.Timeout)
			if k.err == nil && found[i].Pool != 0 && !p.alone() {
				first.Do(func() { late = time.AfterFunc(othersLater, cancel) })
			}
		})
	}
	wait.Wait()
	if late != nil {
		late.Stop()
	}
	if err := p.settle(ctx, lines, found); err != nil {
		for _, l := range lines {
			if l != nil {
				l.close()
			}
		}
		return err
	}
	for i, k := range p.links {
		k.owed = make([]atomic.Uint64, (p.pages+63)/64)
		if l := lines[i]; l != nil {
			l.trusted.Store(found[i].Pool == p.number)
			k.now.Store(l)
		} else {
			k.away = time.Now()
		}
	}
	return nil
}

// settle finds out which pool the servers are, or makes them one.
func (p *pool) settle(ctx context.Context, lines []*line, found []protocol.Description) error {
	var away error
	for i, k := range p.links {
		switch d := found[i]; {
		case lines[i] == nil:
			away = &Error{Op: "connect", Page: -1, Server: k.name, Err: k.err}
		case p.page == 0:
			p.page, p.pages, p.lasting = int(d.Page), d.Span/uint64(d.Page), d.Lasting
			fallthrough
		default:
			p.readOnly = p.readOnly || d.ReadOnly
			if p.number == 0 {
				p.number, p.base = d.Pool, Version(d.Base)
			}
			if err := p.fits(k, d); err != nil {
				return err
			}
		}
	}
	if p.page == 0 {
		return &Error{Op: "connect", Page: -1, Err: fmt.Errorf("%w: %w", ErrUnavailable, away)}
	}
	if p.number != 0 {
		return nil
	}
	if away != nil {
		return &Error{Op: "connect", Page: -1, Err: errors.Join(ErrUnavailable, away),
			Hint: "these servers have not been used together yet, or have restarted: all of them must run for the first client"}
	}
	p.number, p.base = draw(), Version(time.Now().UnixNano())
	for i, k := range p.links {
		d, err := lines[i].join(ctx, p.number, p.base)
		if errors.Is(err, ErrOtherPool) && i == 0 { // another client was faster
			p.number = d.Pool
			if d, err = lines[i].describe(ctx, &protocol.Request{Operation: protocol.Describe}); err == nil {
				p.base = Version(d.Base)
			}
		}
		if err != nil {
			return &Error{Op: "connect", Page: -1, Server: k.name, Err: err}
		}
		found[i] = d
	}
	return nil
}

// start begins to look after the servers.
func (p *pool) start() error {
	n := len(p.links)
	m, err := p.nic.Alloc(p.ctx, n*p.page, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	p.scratchMemory, p.scratches = m, make(chan int, n)
	for i := range n {
		p.scratches <- i
	}
	for _, k := range p.links {
		p.running.Go(func() { k.keep(p.ctx) })
	}
	return nil
}

// close ends all connections.
func (p *pool) close() error {
	p.cancel()
	p.running.Wait()
	if p.scratchMemory == nil {
		return nil
	}
	return p.scratchMemory.Deregister(context.Background())
}
