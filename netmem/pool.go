package netmem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// maxCopies bounds Options.Copies.
const maxCopies = 8

// pool is the servers of a client together: where pages are, and how they are fetched and
// written there.
type pool struct {
	nic      *via.NIC // for the witness
	fabric   fabric
	options  Options
	links    []*link // one for each number, if the pool has a name
	fixed    *layout // nil if it has
	names    *naming // nil if it has none
	page     int     // bytes
	pages    uint64  // that are lent
	alone    bool    // no server holds copies for another
	readOnly bool
	members  uint64 // Record.Members
	client   uint64
	newest   atomic.Uint64 // version that a write built on nothing was refused for
	view     atomic.Pointer[view]
	wake     chan struct{} // the record may have to be changed
	differs  atomic.Bool   // two copies of a page do

	witnessErr atomic.Pointer[error] // what the witness has said last, for the errors of calls that wait for it
	counters   poolCounters
	changes    changes

	scratchMemory *via.Memory
	scratches     chan int

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

type poolCounters struct {
	fetches, direct, begun, writes, failures, failovers, repaired atomic.Uint64
}

// openPool connects with servers, and fills in the defaults of o.
func openPool(ctx context.Context, nic *via.NIC, f fabric, servers []via.Address, o *Options) (*pool, error) {
	if err := o.check(len(servers)); err != nil {
		return nil, err
	}
	p := newPool(nic, f, o)
	var names []string
	for _, a := range servers {
		k := p.link()
		k.at.Store(placeOf(a))
		names = append(names, k.name())
	}
	var err error
	if p.fixed, err = newLayout(p.links, names, o.Copies); err != nil {
		return nil, &Error{Op: "place pages", Err: fmt.Errorf("%w: %w", ErrOption, err)}
	}
	p.number(names)
	return p, p.begin(ctx, p.connect)
}

func newPool(nic *via.NIC, f fabric, o *Options) *pool {
	p := &pool{nic: nic, fabric: f, options: *o, alone: o.Copies == 1, client: draw(), wake: make(chan struct{}, 1)}
	p.view.Store(&view{})
	return p
}

// link adds one.
func (p *pool) link() *link {
	k := &link{pool: p, wake: make(chan struct{}, 1), err: errNoPlace, away: time.Now()}
	p.links = append(p.links, k)
	return k
}

// begin connects with servers.
func (p *pool) begin(ctx context.Context, connect func(context.Context) error) error {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := connect(ctx); err != nil {
		p.cancel()
		return err
	}
	return nil
}

// record is the newest record of the pool that this client knows.
func (p *pool) record() protocol.Record { return p.view.Load().Record }

func unavailable(op string, page uint64, last error) error {
	err := ErrUnavailable
	if last != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, last)
	}
	return &Error{Op: onPage(op, page), Err: err, Hint: "start the server again; with copies and a witness the others go on without it"}
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
			lines[i], found[i], k.err = dialLine(within, p.fabric, k.at.Load().address, p.options.Depth, p.options.Timeout)
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
	for i, k := range p.links[:len(lines)] {
		switch d := found[i]; {
		case lines[i] == nil:
			away = &Error{Op: "connect", Device: k.name(), Err: k.err}
		case p.page == 0:
			p.page, p.pages = int(d.Page), d.Span/uint64(d.Page)
			fallthrough
		default:
			p.readOnly = p.readOnly || d.ReadOnly
			if d.Pool != 0 && d.Epoch > p.record().Epoch && (p.record().Pool == 0 || p.record().Pool == d.Pool) {
				p.learn(d.Record)
			}
			if err := p.fits(k, d); err != nil {
				return err
			}
		}
	}
	if p.page == 0 {
		return &Error{Op: "connect", Err: fmt.Errorf("%w: %w", ErrUnavailable, away)}
	}
	if p.record().Pool != 0 {
		return nil
	}
	if away != nil {
		return &Error{Op: "connect", Err: errors.Join(ErrUnavailable, away),
			Hint: "these servers have not been used together yet, or have restarted: all of them must run for the first client"}
	}
	return p.create(ctx, lines)
}

// create makes new servers a pool, unless another client is faster.
func (p *pool) create(ctx context.Context, lines []*line) error {
	pool, base := draw(), uint64(time.Now().UnixNano())
	first := protocol.FirstRecord(pool, base, p.members, p.options.Copies)
	if p.names != nil {
		first = protocol.FirstNamed(pool, base, p.members, p.options.Copies, len(lines))
	}
	for n := range lines { // in the order of their numbers: the first decides between two clients
		i := slices.IndexFunc(p.links, func(k *link) bool { return k.number == n })
		k, l := p.links[i], lines[i]
		err := l.adopt(ctx, first, n, 0)
		if errors.Is(err, ErrOtherPool) && n == 0 {
			if _, err = l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err == nil {
				first = *l.record.Load()
				p.learn(first)
				err = p.fits(k, protocol.Description{Record: first, Page: uint32(p.page), Span: p.pages * uint64(p.page)})
			}
		}
		if n == 0 && err == nil && !p.alone && p.options.Witness != nil {
			_, err = p.options.Witness.Swap(ctx, p.nic, first, true)
		}
		if err != nil && !errors.Is(err, ErrEpoch) { // a newer one: others use the pool already
			return &Error{Op: "connect", Device: k.name(), Err: err}
		}
		p.learn(*l.record.Load())
	}
	return nil
}

// start begins to look after the servers.
func (p *pool) start() error {
	n := len(p.links)
	m, err := p.fabric.alloc(p.ctx, n*p.page, via.MemoryAttributes{})
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
	if p.names != nil {
		p.running.Go(func() { p.watchNames(p.ctx) })
	}
	if !p.alone {
		p.running.Go(func() { p.tend(p.ctx) })
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
	return p.fabric.free(p.scratchMemory)
}

// layout places pages on servers.
type layout struct {
	*placement.Placement
	links []*link
}

// newLayout fails if there are fewer servers than copies, or two of one name.
func newLayout(links []*link, names []string, copies int) (*layout, error) {
	p, err := placement.New(names, copies)
	return &layout{p, links}, err
}

// of appends the servers of a page to into.
func (l *layout) of(page uint64, into []*link) []*link {
	var room [maxCopies]int
	at := room[:l.Copies()]
	l.Of(page, at)
	for _, n := range at {
		into = append(into, l.links[n])
	}
	return into
}

// only returns the server of a page that has no copies.
func (l *layout) only(page uint64) *link {
	if len(l.links) == 1 {
		return l.links[0]
	}
	var at [1]int
	l.Of(page, at[:])
	return l.links[at[0]]
}

// places puts the servers of a page into into, in the order in which they are written: those
// first that have been members longest, and else as the placement has it. So the copy that is
// written last has nothing that another one has not.
func (p *pool) places(v *view, page uint64, into []*link) []*link {
	into = v.layout.of(page, into)
	slices.SortStableFunc(into, func(a, b *link) int { return v.Rank(a.number) - v.Rank(b.number) })
	return into
}
