package netmem

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Cooperation has clients use each other's idle memory. A page that leaves the cache of one goes to the
// client with the oldest pages, and comes from there when it is missed. Whatever another client sends is
// compared with the digest that the page's server has of it.
type Cooperation struct {
	// Hosts are the addresses of the clients that lend a part of their cache, at most 16. All clients
	// of the same pages name the same ones, in any order and in the same form.
	Hosts []string
	// Name is the discriminator at which this client lends; if it is empty it lends nothing. Hosts
	// then has this client's address, too.
	Name string
	// Lend is the part of Options.Cache that others may use, in bytes; zero is all of it. What this
	// client needs itself it takes back at once.
	Lend int64

	addresses []via.Address // of Hosts
}

// check says what is wrong with it.
func (o *Cooperation) check(cache int64, part int) error {
	switch {
	case len(o.Hosts) == 0 || len(o.Hosts) > protocol.MaxHosts:
		return optionError("Cooperation.Hosts", fmt.Sprintf("%d long", len(o.Hosts)), fmt.Sprintf("1 to %d", protocol.MaxHosts))
	case o.Lend < 0 || o.Lend > cache:
		return optionError("Cooperation.Lend", o.Lend, "0 to the size of the cache")
	case part != 0:
		return optionError("Part", part, "0 with Cooperation")
	}
	return nil
}

// cooperation has what a client knows of the others.
type cooperation struct {
	pool  *pool
	hosts []*host       // by number
	self  int           // the number of this client; -1 if it lends nothing
	own   func() uint64 // pages that have left this client

	mu    sync.Mutex
	epoch epoch
	ended int // ticks since it began
	sum   uint64
	rate  float64 // pages that all hosts together have evicted in the last epoch

	duplicates, discarded, moved atomic.Uint64
}

// newCooperation begins to connect with the hosts, until the pool ends. self is the address at which this
// client lends, nil if it does not, and own says how many pages have left it.
func newCooperation(p *pool, o *Cooperation, self *via.Address, own func() uint64) (*cooperation, error) {
	x := &cooperation{pool: p, self: -1, own: own}
	for i, a := range o.addresses {
		x.hosts = append(x.hosts, &host{address: a, name: o.Hosts[i], wake: make(chan struct{}, 1)})
	}
	slices.SortFunc(x.hosts, func(a, b *host) int { return compareHosts(a.address, b.address) })
	for i, h := range x.hosts {
		h.number = i
		if i > 0 && compareHosts(h.address, x.hosts[i-1].address) == 0 {
			return nil, optionError("Cooperation.Hosts", h.name+" twice", "each once")
		}
		if self != nil && h.address.Discriminator == self.Discriminator && (h.address.MAC == self.MAC || h.address.MAC == datasheet.Broadcast) {
			x.self = i
		}
	}
	if self != nil && x.self < 0 {
		return nil, optionError("Cooperation.Hosts", o.Hosts, "a list with this client's own address, "+self.String())
	}
	for _, h := range x.hosts {
		if h.number != x.self {
			p.running.Go(func() { h.keep(p.ctx, p) })
		}
	}
	return x, nil
}

// tickOnce begins an epoch if it is time. It is called each tick.
func (x *cooperation) tickOnce() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended++; x.ended < int(epochTime/tickTime) && x.epoch.total < x.epoch.sum { // it ends as well when as many pages were sent as it was for
		return
	}
	var all [protocol.MaxHosts]protocol.Summary
	var trust [protocol.MaxHosts]float64
	sum := x.own()
	for i, h := range x.hosts {
		if i != x.self {
			all[i], trust[i] = h.begin()
		}
		sum += all[i].Evicted
	}
	if passed := epochTime.Seconds() / (float64(x.ended) * tickTime.Seconds()); sum >= x.sum {
		x.rate = float64(sum-x.sum) * passed
	}
	x.sum, x.ended = sum, 0
	x.epoch = newEpoch(&all, &trust, x.rate)
}

// others are the hosts, but this one, that are connected.
func (x *cooperation) others() (mask uint16) {
	for i, h := range x.hosts {
		if h.now.Load() != nil {
			mask |= bitOf(i)
		}
	}
	return mask
}

// choose says to which host a page of some age goes, -1 for none. A host that has given a page away has
// room for another.
func (x *cooperation) choose(age uint32) int {
	others := x.others()
	for i, h := range x.hosts {
		if n := h.gave.Load(); n > 0 && others&bitOf(i) != 0 && h.gave.CompareAndSwap(n, n-1) {
			return i
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.epoch.choose(age, others)
}

// lookup is a question to a server: where a page is, or the page.
type lookup struct {
	asks  int
	among uint16
	protocol.Found
}

// fetch fetches a page from a host that has it, or from its server. From self it comes by copy.
func (x *cooperation) fetch(ctx context.Context, page uint64, into ring.Frame, self func(protocol.Stamp, []byte) bool) (protocol.Stamp, time.Duration, error) {
	k := lookup{asks: x.self, among: x.others() | bitOf(x.self), Found: protocol.Found{Host: -1}}
	start := time.Now()
	r, err := x.pool.read(ctx, page, 0, into, &k)
	if err != nil || k.Host < 0 {
		return protocol.Stamp{Version: r.Version, Client: r.Client}, 0, err
	}
	s, pool := protocol.Stamp{Version: r.Version, Client: r.Client}, x.pool.view.Load().Pool
	switch {
	case k.Host >= len(x.hosts): // other clients have another list
	case k.Host == x.self:
		if self(s, into.Bytes()) && protocol.DigestOf(into.Bytes()) == k.Digest {
			x.hosts[x.self].hits.Add(1)
			return s, time.Since(start), nil
		}
	case x.hosts[k.Host].get(ctx, pool, page, s, k.Digest, into):
		return s, time.Since(start), nil
	}
	if ctx.Err() == nil {
		x.pool.move(ctx, page, s, k.Host, x.self) // it is not there
	}
	r, err = x.pool.read(ctx, page, 0, into, nil)
	return protocol.Stamp{Version: r.Version, Client: r.Client}, 0, err
}

// evict sends a page that leaves this client's memory to a host, unless another has it.
func (x *cooperation) evict(ctx context.Context, page uint64, s protocol.Stamp, age uint32, from ring.Frame) {
	to := x.choose(age)
	switch held, known := x.pool.move(ctx, page, s, x.self, to); {
	case held:
		x.duplicates.Add(1)
	case !known || to < 0:
		x.discarded.Add(1)
	case x.hosts[to].put(ctx, x.pool.view.Load().Pool, page, s, age, from):
		x.moved.Add(1)
	default:
		x.pool.move(ctx, page, s, to, -1)
		x.discarded.Add(1)
	}
}

// compareHosts orders hosts.
func compareHosts(a, b via.Address) int {
	return slices.Compare(append(a.MAC[:], a.Discriminator...), append(b.MAC[:], b.Discriminator...))
}

// move tells the server from which a page is read that a version of it goes from one host to another,
// once: if that fails, the server only sends a client to a host in vain. It reports whether other hosts
// have the page, too, and whether the server knows of that version.
func (p *pool) move(ctx context.Context, page uint64, s protocol.Stamp, from, to int) (held, known bool) {
	v := p.view.Load()
	var room [maxCopies]*link
	list, members := p.places(v, page, room[:0])
	if members == 0 {
		return false, false
	}
	k := list[members-1]
	l := v.line(k)
	if l == nil {
		return false, false
	}
	q := protocol.Request{Epoch: v.Epoch}
	q.SetMove(page, s, from, to)
	r, _, err := l.call(ctx, &q, ring.Frame{}, ring.Frame{})
	if err != nil {
		_ = p.lost(ctx, "move", page, k, l, err) // no call waits for the page
		return false, false
	}
	return r.Flags&protocol.Held != 0, r.Result == protocol.OK
}

// cooperate begins to use other clients' memory, and to lend them this client's.
func (c *Client) cooperate(ctx context.Context, o *Cooperation) error {
	c.reserve = max(2, min(mostLeaving/2, len(c.frames)/8))
	c.mostLeaving = c.reserve
	var self *via.Address
	if o.Name != "" {
		lend := o.Lend
		if lend == 0 {
			lend = c.options.Cache
		}
		l, err := newLodging(ctx, c, o.Name, lend)
		if err != nil {
			return err
		}
		c.lodging, self = l, &via.Address{Discriminator: o.Name}
		l.summary = c.summary(l.most)
		if c.pool.nic != nil {
			if err := l.listen(c.pool.nic); err != nil {
				return err
			}
			self = new(l.server.Address())
		}
	}
	var err error
	c.cooperation, err = newCooperation(c.pool, o, self, func() uint64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.evicted
	})
	if err == nil {
		c.pool.running.Go(func() { c.ticks(c.pool.ctx) })
	}
	return err
}

// ticks counts the time by which pages age, until ctx ends.
func (c *Client) ticks(ctx context.Context) {
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	for {
		c.mu.Lock()
		if c.tick++; c.lodging != nil && (c.tick%4 == 0 || c.tick == 1) {
			c.lodging.summary = c.summary(c.lodging.most)
		}
		c.mu.Unlock()
		c.cooperation.tickOnce()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lodge sends the page of a frame that is about to be freed to a host, if it is worth it. The page does
// not change meanwhile.
func (c *Client) lodge(f *frame) {
	own := c.pool.view.Load().Pool
	if c.cooperation == nil || f.state != valid || f.dirty || f.pins > 0 || f.owner != 0 && f.owner != own {
		return
	}
	f.state, f.used = writing, false
	c.evicted++
	page, age, frame := f.change.page, c.tick-f.last, c.frameOf(f)
	s := protocol.Stamp{Version: uint64(f.change.base), Client: f.change.writer}
	c.mu.Unlock()
	c.cooperation.evict(context.Background(), page, s, age, frame)
	c.mu.Lock()
	f.state = valid
}

// stats adds what has been counted of hosts.
func (x *cooperation) stats(s *Stats) {
	s.Sent, s.Duplicates, s.Discarded = x.moved.Load(), x.duplicates.Load(), x.discarded.Load()
	for i, h := range x.hosts {
		if i == x.self {
			continue
		}
		h.mu.Lock()
		err := h.err
		h.mu.Unlock()
		s.Hosts = append(s.Hosts, HostState{
			Address: h.name, Connected: h.now.Load() != nil, Err: err,
			Hits: h.hits.Load(), Missing: h.missing.Load(), Wrong: h.wrong.Load(), Sent: h.sent.Load(), Refused: h.refused.Load(), Broken: h.broken.Load(),
		})
		s.Missing += h.missing.Load()
		s.Wrong += h.wrong.Load()
	}
}
