package netmem

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// A client asks each lookEvery which servers have the pool's name.
const lookEvery = time.Second

// errNoPlace: it is not known, or not any more, which server has a number of the pool.
var errNoPlace = errors.New("no server that has the name says that it has this number")

// naming has what a client knows of the servers that have the pool's name.
type naming struct {
	name   string
	lookup func(context.Context) ([]via.Address, error)
	grace  time.Duration // a server that has not had the name for as long has left

	mu    sync.Mutex
	asked time.Time            // when the service has answered last
	seen  map[string]time.Time // when it had an address last
	list  []via.Address

	notBefore time.Time // no move is begun; of tend only
}

// look asks the service. One that does not answer, or has no address at all, changes nothing.
func (n *naming) look(ctx context.Context) ([]via.Address, error) {
	list, err := n.lookup(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil || len(list) == 0 {
		return n.list, err
	}
	slices.SortFunc(list, func(a, b via.Address) int { return strings.Compare(a.String(), b.String()) })
	n.list, n.asked = slices.Compact(list), time.Now()
	for _, a := range n.list {
		n.seen[a.String()] = n.asked
	}
	return n.list, nil
}

// left says that a server has not had the name for some time.
func (n *naming) left(k *link) bool {
	at := k.at.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	return at != nil && n.asked.Sub(n.seen[at.name]) >= n.grace && !n.seen[at.name].IsZero()
}

// stands returns the number that stands for an address in a record.
func stands(a via.Address) uint32 {
	h := fnv.New32a()
	h.Write([]byte(a.String())) // it never fails
	return h.Sum32()
}

// newest says that a server is the one that the record lets in.
func (v *view) newest(at *place) bool { return at != nil && stands(at.address) == v.Newest() }

// layoutOf places pages on the servers of a record that are in some states. It is nil if they are
// fewer than the copies.
func (p *pool) layoutOf(r protocol.Record, as ...protocol.State) *layout {
	var links []*link
	var names []string
	for _, k := range p.links {
		if slices.Contains(as, r.State(k.number)) {
			links, names = append(links, k), append(names, strconv.Itoa(k.number))
		}
	}
	l, err := newLayout(links, names, p.options.Copies)
	if err != nil {
		return nil
	}
	return l
}

// openNamed is openPool for the servers that have a name, now and later.
func openNamed(ctx context.Context, nic *via.NIC, f fabric, name string, lookup func(context.Context) ([]via.Address, error), o *Options) (*pool, error) {
	if err := o.check(protocol.MaxServers); err != nil {
		return nil, err
	}
	p := newPool(nic, f, o)
	p.names = &naming{name: name, lookup: lookup, grace: o.Timeout, seen: map[string]time.Time{}}
	for range protocol.MaxServers {
		p.link()
	}
	p.number([]string{name})
	p.members &^= 1<<32 - 1 // the lower half is for the server that comes last
	return p, p.begin(ctx, p.connectNamed)
}

// connectNamed connects with the servers that have the name, and makes them a pool if they are in none.
func (p *pool) connectNamed(ctx context.Context) error {
	list, err := p.names.look(ctx)
	if err != nil || len(list) == 0 {
		return &Error{Op: "connect", Device: p.names.name, Err: errors.Join(ErrUnavailable, err)}
	}
	list = list[:min(len(list), protocol.MaxServers)]
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	lines, found := make([]*line, len(list)), make([]protocol.Description, len(list))
	var wait sync.WaitGroup
	for i, a := range list {
		p.links[i].at.Store(placeOf(a))
		wait.Go(func() {
			lines[i], found[i], p.links[i].err = dialLine(within, p.fabric, a, p.options.Depth, p.options.Timeout)
		})
	}
	wait.Wait()
	if len(list) < p.options.Copies && !slices.ContainsFunc(found, func(d protocol.Description) bool { return d.Pool != 0 }) {
		err = optionError("Copies", p.options.Copies, "as many as servers have the name")
	} else {
		err = p.agree(ctx, lines, found)
	}
	keep := make([]*line, len(p.links)) // by their numbers
	places := make([]*place, len(p.links))
	for i, l := range lines {
		if l == nil {
			continue
		}
		n := int(l.self.Load())
		if err == nil && p.claims(n, l) && keep[n] == nil {
			keep[n], places[n] = l, p.links[i].at.Load()
		} else {
			l.close()
		}
	}
	now := time.Now()
	for i, k := range p.links {
		k.at.Store(places[i])
		if k.away, k.err = now, errNoPlace; keep[i] != nil {
			k.now.Store(keep[i])
		}
	}
	return err
}

// claims says whether a server, on its line, is the one of a number in the record. One with a record
// from before the last move is not: the number may be another's since.
func (p *pool) claims(n int, l *line) bool {
	r, has := p.record(), l.record.Load()
	return n >= 0 && n < len(p.links) && int(l.self.Load()) == n && has.SamePool(r) && r.State(n) == protocol.Member &&
		(has.State(n) == protocol.Member || has.State(n) == protocol.Joining) && r.Generation()-has.Generation() <= 1
}

// watchNames finds the servers of the pool among those that have its name, until ctx ends.
func (p *pool) watchNames(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		p.watchOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *pool) watchOnce(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	list, _ := p.names.look(within) // the last answer stands
	cancel()
	v := p.view.Load()
	if v.forming() {
		return
	}
	for _, k := range p.links {
		at, l := k.at.Load(), k.now.Load()
		var wrong bool
		switch v.State(k.number) {
		case protocol.Member:
			wrong = l != nil && !l.blank() && l.record.Load().Epoch <= v.Epoch && !p.claims(k.number, l)
		case protocol.Joining:
			wrong = at != nil && !v.newest(at)
		default:
			wrong = at != nil && (p.names.left(k) || v.State(k.number) == protocol.Out)
		}
		if wrong {
			k.seat(nil)
		}
	}
	for _, a := range list {
		seated := func(k *link) bool { at := k.at.Load(); return at != nil && at.address.String() == a.String() }
		if !slices.ContainsFunc(p.links, seated) {
			p.find(ctx, v, a)
		}
	}
}

// find asks a server which of the pool it is, or lets it wait for a number.
func (p *pool) find(ctx context.Context, v *view, a via.Address) {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	l, d, err := dialLine(within, p.fabric, a, 2, p.options.Timeout)
	if err != nil {
		return // it is looked for again
	}
	defer l.close()
	switch {
	case int(d.Page) != p.page || d.Span/uint64(d.Page) != p.pages:
		return
	case d.Pool == v.Pool && d.Epoch > v.Epoch && d.SamePool(v.Record):
		p.learn(d.Record)
		return
	case d.Pool != 0 && !d.SamePool(v.Record):
		return
	}
	for _, k := range p.links {
		var mine bool
		switch v.State(k.number) {
		case protocol.Member:
			mine = k.now.Load() == nil && p.claims(k.number, l)
		case protocol.Joining:
			mine = stands(a) == v.Newest()
		case protocol.Vacant:
			mine = !v.Moving() && k.at.Load() == nil && !p.claims(int(l.self.Load()), l)
		}
		if mine {
			k.seat(placeOf(a))
			return
		}
	}
}

// seat says which server has a number.
func (k *link) seat(at *place) {
	k.mu.Lock()
	k.at.Store(at)
	l := k.now.Load()
	k.mu.Unlock()
	if l != nil {
		k.down(l, errNoPlace)
	}
	k.look()
}

// moveAgain is when a move that could not be done is tried again.
const moveAgain = 10 * time.Second

// relocate has pages move: away from servers that are out, and to one that waits for a number.
func (p *pool) relocate(ctx context.Context, v *view) {
	if v.Moving() {
		p.endMove(ctx, v)
		return
	}
	if !p.told(v) || time.Now().Before(p.names.notBefore) {
		return
	}
	next, newcomer := v.Move(-1, 0), false
	for _, k := range p.links {
		if v.State(k.number) == protocol.Vacant && k.now.Load() != nil && !p.names.left(k) {
			at := k.at.Load()
			if newcomer = at != nil; newcomer {
				next = v.Move(k.number, stands(at.address))
				break
			}
		}
	}
	if !newcomer && !p.anyOut(v.Record) {
		return
	}
	to := p.layoutOf(next, protocol.Member, protocol.Joining)
	if to == nil {
		return // too few servers are left
	}
	// Most pages are copied before, so that the pool stands still for the others only.
	if err := p.level(ctx, v, to); err != nil {
		if errors.Is(err, errRefused) {
			p.names.notBefore = time.Now().Add(moveAgain)
		}
		return
	}
	p.change(ctx, v, next)
}

// endMove makes all servers of each page equal, and ends the move.
func (p *pool) endMove(ctx context.Context, v *view) {
	for _, k := range p.links {
		// All members know of a move before the next record has another generation.
		if v.State(k.number) == protocol.Member && !v.has(k) {
			return
		}
	}
	var newcomer *link
	for _, k := range p.links {
		if v.State(k.number) == protocol.Joining {
			newcomer = k
		}
	}
	done := p.told(v)
	switch {
	case !done && newcomer != nil && newcomer.now.Load() == nil && time.Since(newcomer.awaySince()) >= p.options.Timeout:
	case !done || !p.expired(v):
		return
	case v.next == nil:
		done = false
	default:
		err := p.level(ctx, v, v.next)
		if done = err == nil; !done && !errors.Is(err, errRefused) {
			return
		}
		if done && newcomer != nil {
			l := newcomer.now.Load()
			if l == nil || l.adopt(ctx, v.Record, newcomer.number, protocol.Exactly) != nil {
				return
			}
		}
	}
	if !done {
		p.names.notBefore = time.Now().Add(moveAgain)
	}
	p.change(ctx, v, v.Moved(done))
}

// errRefused is wrapped by the error of level if a server will not take or give a page.
var errRefused = errors.New("a server refuses a page")

// errStopped: the pages cannot be compared now.
var errStopped = errors.New("a server is away, or the record has changed")

// level makes each page the same on all servers that are to have it: as its members have it. While
// pages are read and written, that goes for servers which are not to have the page yet.
func (p *pool) level(ctx context.Context, v *view, to *layout) error {
	var list []*link
	for _, k := range p.links {
		l := k.now.Load()
		// One with an old record of the pool takes pages only once it has the new one.
		if v.in(k) || l != nil && l.blank() && slices.Contains(to.links, k) {
			list = append(list, k)
		}
	}
	err := errStopped
	if p.runs(ctx, v, list, func(first uint64, stamps map[*link][]protocol.Stamp) bool {
		for i := range min(uint64(p.page/protocol.StampSize), p.pages-first) {
			if e := p.levelPage(ctx, v, to, first+i, func(k *link) (protocol.Stamp, bool) {
				run, known := stamps[k]
				if !known {
					return protocol.Stamp{}, false
				}
				return run[i], true
			}); e != nil {
				err = e
				return false
			}
		}
		return !slices.ContainsFunc(p.links, func(k *link) bool { _, changes := p.next(v, k); return changes })
	}) {
		return nil
	}
	return err
}

func (p *pool) levelPage(ctx context.Context, v *view, to *layout, page uint64, stamp func(*link) (protocol.Stamp, bool)) error {
	var room, other [maxCopies]*link
	places := p.places(v, page, room[:0])
	var newest *link
	var has protocol.Stamp
	for _, k := range places {
		s, known := stamp(k)
		if !known || v.State(k.number) != protocol.Member {
			continue
		}
		if newest == nil || s.Version > has.Version {
			newest, has = k, s
		}
	}
	if newest == nil {
		return errStopped
	}
	for _, k := range to.of(page, other[:0]) {
		s, known := stamp(k)
		l := k.now.Load()
		switch {
		case !v.Moving() && (!known || slices.Contains(places, k) || has.Flags&protocol.Unwritten != 0):
			continue
		case !known || l == nil:
			return errStopped
		case s.Same(has):
			continue
		}
		err := p.copyPage(ctx, v, page, newest, k, l, protocol.Exactly)
		if errors.Is(err, ErrFull) || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrOutside) {
			return errors.Join(errRefused, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
