package driver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/vfio"
)

// CacheOptions bound a RegistrationCache.
type CacheOptions struct {
	// Entries and Bytes are the registrations, and their bytes in all, that it
	// keeps at most; zero is 1024 and 1 GiB.
	Entries int
	Bytes   uint64
	// Attributes of its registrations.
	Attributes MemoryAttributes
}

// RegistrationCache registers memory at its first use, and keeps it registered for the
// next: registering, and pinning the pages for it, costs many times what a short message
// does. What was not used for longest goes first when there is no more room. Its methods
// may be called from several goroutines; who finds memory registered takes no lock.
//
// The cache cannot see what becomes of memory. Before the program unmaps or shrinks
// memory of its own that may have been used with the cache, it calls Invalidate.
type RegistrationCache struct {
	n     *NIC
	o     CacheOptions
	front []atomic.Pointer[Memory] // what was used lately, by page; in pairs
	shift uint8
	tick  atomic.Uint64 // grows with each registration: the time of "least recently used"

	lock   chan struct{} // held by who changes what follows
	all    []*Memory     // to look through them is little beside a registration
	bytes  uint64
	closed bool
	counts CacheStats
}

// CacheStats count what a RegistrationCache has done and has.
type CacheStats struct {
	// Hits and Misses are calls of Acquire that found memory registered, and that
	// registered it.
	Hits, Misses uint64
	// Evicted registrations went because there was no room, Invalidated ones because
	// Invalidate said so.
	Evicted, Invalidated uint64
	// Entries and Bytes count the registrations of now.
	Entries int
	Bytes   uint64
}

// NewCache makes a cache of registrations. It fails with ErrInvalidParameter for bounds
// that are negative, or more entries than 2^24 or than the NIC has regions.
func (n *NIC) NewCache(o CacheOptions) (*RegistrationCache, error) {
	const op = "new registration cache"
	if o.Entries == 0 {
		o.Entries = min(1024, int(n.identity.MaxRegions))
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 30
	}
	if o.Entries < 0 || o.Entries > min(maxCache, int(n.identity.MaxRegions)) {
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "%d entries, the NIC has %d regions", o.Entries, int(n.identity.MaxRegions))
	}
	if n.closing.Load() {
		return nil, n.Refuse(op, descriptors.ErrClosed, "", "")
	}
	log2 := uint8(1)
	for 1<<log2 < 2*o.Entries {
		log2++
	}
	return &RegistrationCache{n: n, o: o, front: make([]atomic.Pointer[Memory], 1<<log2), shift: 64 - log2, lock: make(chan struct{}, 1)}, nil
}

// pageShift: the front is looked at by 4 KiB of addresses.
const pageShift = 12

// slot is the first of the two places of the front for address.
func (c *RegistrationCache) slot(address uint64) uint64 {
	const spread = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)
	return (address >> pageShift * spread) >> c.shift &^ 1
}

// Acquire returns a registration that b, which is not empty, lies in, to post
// descriptors that name it; Release ends the use. The registration has all pages of b, and
// perhaps more. It fails as NIC.Register does, and with ErrResource if b is larger than
// the cache, or so much is in use that nothing can go.
func (c *RegistrationCache) Acquire(ctx context.Context, b []byte) (*Memory, error) {
	if len(b) > 0 && !c.n.closing.Load() {
		first, end := dma.Bounds(b)
		i := c.slot(first)
		for _, slot := range [...]*atomic.Pointer[Memory]{&c.front[i], &c.front[i+1]} {
			if e := slot.Load(); e != nil && first >= e.first && end <= e.end && e.use() {
				return e, nil
			}
		}
	}
	return c.find(ctx, b)
}

// find is Acquire for what the front does not have.
func (c *RegistrationCache) find(ctx context.Context, b []byte) (*Memory, error) {
	const op = "acquire memory"
	n := c.n
	if err := n.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "no bytes")
	}
	if err := c.begin(ctx, op); err != nil {
		return nil, err
	}
	defer c.finish()
	if c.closed {
		return nil, n.Refuse(op, descriptors.ErrClosed, "", "")
	}
	first, end := dma.Bounds(b)
	var e *Memory
	if i := slices.IndexFunc(c.all, func(e *Memory) bool { return first >= e.first && end <= e.end && e.use() }); i >= 0 {
		e = c.all[i]
	} else {
		var err error
		if e, err = c.register(ctx, op, b); err != nil {
			return nil, err
		}
	}
	i := c.slot(first)
	if c.front[i].Load() != nil && (c.front[i+1].Load() == nil || c.tick.Load()%2 == 1) {
		i++
	}
	c.front[i].Store(e)
	return e, nil
}

// register makes a registration with one user, after making room. lock is held.
func (c *RegistrationCache) register(ctx context.Context, op string, b []byte) (*Memory, error) {
	n := c.n
	if vfio.OnGoHeap(b) {
		// Pages around an object of the heap are not to be touched.
		_, err := n.Register(ctx, b, c.o.Attributes)
		return nil, err
	}
	pages, first := dma.WholePages(b)
	size := uint64(len(pages))
	if size > c.o.Bytes {
		return nil, n.Refuse(op, descriptors.ErrResource, "make the cache larger, or register the memory", "%d bytes, the cache holds %d", size, c.o.Bytes)
	}
	for c.bytes > c.o.Bytes-size || len(c.all) >= c.o.Entries {
		if err := c.evict(ctx, op); err != nil {
			return nil, err
		}
	}
	m, err := n.Register(ctx, pages, c.o.Attributes)
	if err != nil {
		return nil, err
	}
	m.first, m.end, m.clock = first, first+size, &c.tick
	m.used.Store(c.tick.Add(1))
	m.state.Store(oneUser)
	c.all = append(c.all, m)
	c.bytes += size
	c.counts.Misses++
	return m, nil
}

// evict ends the registration that was not used for longest and is not in use now.
func (c *RegistrationCache) evict(ctx context.Context, op string) error {
	var failed []*Memory
	var err error
	for {
		var oldest *Memory
		for _, e := range c.all {
			if e.state.Load()&users == 0 && (oldest == nil || e.used.Load() < oldest.used.Load()) && !slices.Contains(failed, e) {
				oldest = e
			}
		}
		if oldest == nil {
			return errors.Join(c.n.Refuse(op, descriptors.ErrResource, "release what is not needed, or make the cache larger",
				"all %d registrations of the cache are in use", len(c.all)), err)
		}
		if s := oldest.state.Load(); s&users != 0 || !oldest.state.CompareAndSwap(s, s|retired) {
			continue // it has a user again
		}
		if err = oldest.deregister(ctx); err == nil {
			c.drop(oldest)
			c.counts.Evicted++
			return nil
		}
		oldest.state.And(^uint64(retired)) // such as for a descriptor that is posted there
		failed = append(failed, oldest)
		if ctx.Err() != nil || c.n.closing.Load() {
			return err
		}
	}
}

// drop forgets a registration that has been retired. lock is held.
func (c *RegistrationCache) drop(e *Memory) {
	c.counts.Hits += e.state.Load() / oneUse
	c.all = slices.DeleteFunc(c.all, func(other *Memory) bool { return other == e })
	c.bytes -= e.end - e.first
	for page := e.first; page < e.end; page += 1 << pageShift {
		for i := c.slot(page); i <= c.slot(page)+1; i++ {
			if c.front[i].Load() == e {
				c.front[i].Store(nil)
			}
		}
	}
}

// Release ends a use that Acquire began. Of memory that Invalidate was told of, the last
// Release ends the registration, and returns what that fails with.
func (c *RegistrationCache) Release(m *Memory) error {
	const op = "release memory"
	if m == nil || m.clock != &c.tick {
		return c.n.Refuse(op, descriptors.ErrInvalidParameter, "", "not memory that this cache has acquired")
	}
	if m.state.Load()&users == 0 {
		return c.n.Refuse(op, descriptors.ErrInvalidParameter, "", "released already")
	}
	if s := m.state.Add(^uint64(oneUser - 1)); s&retired == 0 || s&users != 0 {
		return nil
	}
	return m.deregister(context.Background())
}

// Invalidate ends all registrations that b shares a page with, so that b can be unmapped
// or become smaller. Those that are in use end with their last Release, and
// Invalidate fails with ErrResource: b must stay as it is until then. In both cases
// Acquire finds none of them any more.
func (c *RegistrationCache) Invalidate(ctx context.Context, b []byte) error {
	const op = "invalidate memory"
	if err := c.n.CheckCall(ctx, op); err != nil {
		return err
	}
	if len(b) == 0 {
		return nil
	}
	if err := c.begin(ctx, op); err != nil {
		return err
	}
	defer c.finish()
	first, end := dma.Bounds(b)
	return c.retire(ctx, op, func(e *Memory) bool { return e.first < end && e.end > first })
}

// retire ends the registrations that are meant, now or when they are released. lock is held.
func (c *RegistrationCache) retire(ctx context.Context, op string, meant func(*Memory) bool) error {
	var errs []error
	inUse := 0
	for _, e := range slices.Clone(c.all) {
		if !meant(e) {
			continue
		}
		if e.state.Or(retired)&users != 0 {
			inUse++
		} else if err := e.deregister(ctx); err != nil {
			e.state.And(^uint64(retired)) // such as for a descriptor that is posted there
			errs = append(errs, err)
			continue
		}
		c.drop(e)
		c.counts.Invalidated++
	}
	if inUse > 0 {
		errs = append(errs, c.n.Refuse(op, descriptors.ErrResource, "", "%d registrations are in use", inUse))
	}
	return errors.Join(errs...)
}

// Close ends all registrations, as Invalidate does. Acquire fails with ErrClosed from
// then on.
func (c *RegistrationCache) Close(ctx context.Context) error {
	const op = "close registration cache"
	if err := c.n.CheckCall(ctx, op); errors.Is(err, descriptors.ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	if err := c.begin(ctx, op); err != nil {
		return err
	}
	defer c.finish()
	c.closed = true
	return c.retire(ctx, op, func(*Memory) bool { return true })
}

// Stats returns what has been counted.
func (c *RegistrationCache) Stats() CacheStats {
	c.lock <- struct{}{}
	defer c.finish()
	s := c.counts
	s.Entries, s.Bytes = len(c.all), c.bytes
	for _, e := range c.all {
		s.Hits += e.state.Load() / oneUse
	}
	return s
}

// begin takes the lock, unless ctx ends before.
func (c *RegistrationCache) begin(ctx context.Context, op string) error {
	select {
	case c.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return c.n.error(op, ctx.Err())
	}
}

func (c *RegistrationCache) finish() { <-c.lock }
