package ethernet

import "github.com/trapeze-nic/trapeze/internal/hotlock"

// Cache is a stock of free buffers that one goroutine has for itself, so that taking and
// giving back takes the pool's lock only now and then. Each Queue has one, for the goroutine that
// uses the queue. A lock of its own lets a port that is restarted or closed by another
// goroutine put back what it had.
type Cache struct {
	pool   *Pool
	lock   hotlock.Mutex // for all that follows
	free   []uint32      // a stack; its capacity does not change
	closed bool
}

// cacheSize is the number of buffers that a cache of NewCache may hold, unless the pool is small.
const cacheSize = 512

// NewCache makes an empty cache. It holds at most 512 buffers, and at most an eighth of
// the pool's.
func (p *Pool) NewCache() *Cache {
	return &Cache{pool: p, free: make([]uint32, 0, max(2, min(cacheSize, p.options.Buffers/8)))}
}

// Pool returns the pool that the buffers belong to.
func (c *Cache) Pool() *Pool { return c.pool }

// Alloc gives each of frames an empty buffer, from the front, and returns how many got
// one: less than all if the pool has no more. Offset is the headroom, all else is zero.
func (c *Cache) Alloc(frames []Frame) int {
	c.lock.Lock()
	defer c.unlock()
	for i := range frames {
		b, ok := c.take()
		if !ok {
			return i
		}
		frames[i] = Frame{Buffer: b, Offset: uint16(c.pool.options.Headroom)}
	}
	return len(frames)
}

// unlock unlocks a cache. One that was closed keeps nothing.
func (c *Cache) unlock() {
	if c.closed {
		c.spill(len(c.free))
	}
	c.lock.Unlock()
}

// Free gives back the buffers of frames. Each buffer must be given back once.
func (c *Cache) Free(frames []Frame) {
	c.lock.Lock()
	defer c.unlock()
	for i := range frames {
		c.give(frames[i].Buffer)
	}
}

// Take takes a buffer; ok is false if neither cache nor pool have one.
func (c *Cache) Take() (b uint32, ok bool) {
	c.lock.Lock()
	defer c.unlock()
	return c.take()
}

func (c *Cache) take() (b uint32, ok bool) {
	n := len(c.free)
	if n == 0 {
		if n = c.refill(); n == 0 {
			return 0, false
		}
	}
	b = c.free[n-1]
	c.free = c.free[:n-1]
	return b, true
}

// Give gives a buffer back. One that there is not is ignored.
func (c *Cache) Give(b uint32) {
	c.lock.Lock()
	defer c.unlock()
	c.give(b)
}

func (c *Cache) give(b uint32) {
	if b >= uint32(c.pool.options.Buffers) {
		return
	}
	if len(c.free) == cap(c.free) {
		c.spill((len(c.free) + 1) / 2)
	}
	c.free = append(c.free, b)
}

// TakeAll is for drivers, for a burst of the queue's: it takes n buffers, or as many as
// cache and pool have at once, without copying or locking. What it returns is valid until
// the cache is used again: the driver holds a lock of its own that keeps its other
// goroutines from giving buffers back meanwhile.
func (c *Cache) TakeAll(n int) []uint32 {
	have := len(c.free)
	if have < n {
		have = c.refill()
	}
	n = min(n, have)
	taken := c.free[have-n:]
	c.free = c.free[:have-n]
	return taken
}

// GiveAll is for drivers, on any goroutine: it gives back buffers, all of which exist.
func (c *Cache) GiveAll(list []uint32) {
	c.lock.Lock()
	defer c.unlock()
	for len(list) > 0 {
		if len(c.free) == cap(c.free) {
			c.spill((len(c.free) + 1) / 2)
		}
		n := min(len(list), cap(c.free)-len(c.free))
		c.free = append(c.free, list[:n]...)
		list = list[n:]
	}
}

// refill takes up to half of what the cache can hold, and returns how many it has.
func (c *Cache) refill() int {
	p := c.pool
	p.lock.Lock()
	n := min(len(p.free), cap(c.free)/2, cap(c.free)-len(c.free))
	c.free = append(c.free, p.free[len(p.free)-n:]...)
	p.free = p.free[:len(p.free)-n]
	p.lock.Unlock()
	return len(c.free)
}

// spill gives n buffers to the pool, those longest unused. A pool that is full has been
// given a buffer twice: what does not fit is left out.
func (c *Cache) spill(n int) {
	p := c.pool
	p.lock.Lock()
	p.free = append(p.free, c.free[:min(n, cap(p.free)-len(p.free))]...)
	p.lock.Unlock()
	c.free = c.free[:copy(c.free, c.free[n:])]
}

// Close gives all buffers to the pool. Those that are given back later go there at once.
func (c *Cache) Close() {
	c.lock.Lock()
	c.closed = true
	c.unlock()
}
