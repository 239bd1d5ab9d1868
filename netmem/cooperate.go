package netmem

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

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
		x.hosts = append(x.hosts, &host{keeper: newKeeper(), address: a, seen: HostState{Address: o.Hosts[i]}})
	}
	slices.SortFunc(x.hosts, func(a, b *host) int { return compareHosts(a.address, b.address) })
	for i, h := range x.hosts {
		if i > 0 && compareHosts(h.address, x.hosts[i-1].address) == 0 {
			return nil, optionError("Cooperation.Hosts", h.seen.Address+" twice", "each once")
		}
		if self != nil && h.address.Discriminator == self.Discriminator && (h.address.MAC == self.MAC || h.address.MAC == datasheet.Broadcast) {
			x.self = i
		}
	}
	if self != nil && x.self < 0 {
		return nil, optionError("Cooperation.Hosts", o.Hosts, "a list with this client's own address, "+self.String())
	}
	for i, h := range x.hosts {
		if i != x.self {
			p.running.Go(func() {
				h.keep(p.ctx, epochTime, func(ctx context.Context) error { return h.dial(ctx, p) }, h.ask)
			})
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

// fetch fetches a page from a host that has it, or from its server. From self it comes by copy.
func (x *cooperation) fetch(ctx context.Context, page uint64, into ring.Frame, self func(protocol.Stamp, []byte) bool) (protocol.Stamp, time.Duration, error) {
	k := lookup{asks: x.self, among: x.others() | bitOf(x.self), Found: protocol.Found{Host: -1}}
	start := time.Now()
	r, err := x.pool.read(ctx, page, into, &k)
	if err != nil || k.Host < 0 {
		return r.Stamp, 0, err
	}
	s, pool := r.Stamp, x.pool.view.Load().Pool
	switch {
	case int(k.Host) >= len(x.hosts): // other clients have another list
	case int(k.Host) == x.self:
		if self(s, into.Bytes()) && protocol.DigestOf(into.Bytes()) == k.Digest {
			return s, time.Since(start), nil
		}
	case x.hosts[k.Host].get(ctx, pool, page, s, k.Digest, into):
		return s, time.Since(start), nil
	}
	if ctx.Err() == nil {
		x.pool.move(ctx, page, s, int(k.Host), x.self) // it is not there
	}
	r, err = x.pool.read(ctx, page, into, nil)
	return r.Stamp, 0, err
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

func (x *cooperation) stats(s *Stats) {
	s.Sent, s.Duplicates, s.Discarded = x.moved.Load(), x.duplicates.Load(), x.discarded.Load()
	for i, h := range x.hosts {
		if i == x.self {
			continue
		}
		h.mu.Lock()
		now := h.seen
		h.mu.Unlock()
		now.Connected = h.now.Load() != nil
		s.Hosts = append(s.Hosts, now)
		s.Missing += now.Missing
		s.Wrong += now.Wrong
	}
}
