package netmem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/readahead"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// Client reads and writes what servers lend. Its methods may be called from several
// goroutines. It is an io.ReaderAt and an io.WriterAt.
type Client struct {
	pool    *pool
	options Options
	page    int
	memory  *via.Memory // of the cache
	jobs    chan job
	workers sync.WaitGroup
	// deadline of calls; nil for none.
	deadline atomic.Pointer[time.Time]

	mu      sync.Mutex
	changed *sync.Cond // a frame has, or the client is closed
	asking  int        // who is about to give the workers a job
	closed  bool
	failed  error // of pages that are not in the cache any more; for Sync
	ahead   readahead.Detector
	latency latencies // of fetches that a caller waited for
	near    latencies // of those from other clients
	// cooperation and lodging are nil without Options.Cooperation, and where this client lends nothing.
	cooperation *cooperation
	lodging     *lodging
	stats       Stats
	cache
}

var (
	_ io.ReaderAt = (*Client)(nil)
	_ io.WriterAt = (*Client)(nil)
)

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

// openServers opens the pool of some servers.
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
	c := &Client{pool: p, options: o, page: p.page}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// start makes the cache and the goroutines behind it.
func (c *Client) start(ctx context.Context) error {
	if err := c.pool.start(); err != nil {
		return err
	}
	frames := int(c.options.Cache / int64(c.page))
	if frames < leastFrames {
		return optionError("Cache", c.options.Cache, fmt.Sprintf("at least %d", leastFrames*c.page))
	}
	if c.options.Part >= c.page {
		c.options.Part = 0
	}
	m, err := c.pool.fabric.alloc(ctx, frames*c.page, via.MemoryAttributes{})
	if err != nil {
		return &Error{Op: fmt.Sprintf("allocate a cache of %d bytes", c.options.Cache), Err: err}
	}
	c.memory = m
	c.cache.init(frames)
	c.changed = sync.NewCond(&c.mu)
	c.ahead.Window = (min(c.options.ReadAhead/c.page, frames/4) + 1) / 2 // two windows are ahead of a reader at most
	c.jobs = make(chan job, 4*c.options.Workers)
	for range c.options.Workers {
		c.workers.Go(c.work)
	}
	if o := c.options.Cooperation; o != nil {
		return c.cooperate(ctx, o)
	}
	return nil
}

// Size returns the end of the addresses, in bytes.
func (c *Client) Size() int64 { return int64(c.pool.pages) * int64(c.page) }

// Page is the size of a page in bytes.
func (c *Client) Page() int { return c.page }

// frameOf is where frame f lies.
func (c *Client) frameOf(f *frame) ring.Frame {
	return ring.Frame{Memory: c.memory, Offset: int(f.number) * c.page, Length: c.page}
}

func (c *Client) bytes(f *frame) []byte { return c.memory.Bytes()[int(f.number)*c.page:][:c.page] }

// ReadAt reads len(p) bytes at off. Bytes that were never written are zeros. It returns io.EOF at the
// end of what is lent. It returns an *Error if a page cannot be fetched by the deadline of
// SetDeadline, or within the timeout of its servers; p then has what came before it.
func (c *Client) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, &Error{Op: "read", Err: ErrOutside}
	}
	lent := p[:min(int64(len(p)), max(0, c.Size()-off))]
	if n, err = c.eachPage(lent, off, c.readPage); err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// eachPage moves p, which begins at off, page by page, and returns how many bytes came before an
// error.
func (c *Client) eachPage(p []byte, off int64, move func(ctx context.Context, page uint64, within int, part []byte) error) (done int, err error) {
	ctx, end := c.begin()
	defer end()
	for done < len(p) {
		at := off + int64(done)
		page, within := uint64(at)/uint64(c.page), int(at%int64(c.page))
		n := min(len(p)-done, c.page-within)
		if err := move(ctx, page, within, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (c *Client) readPage(ctx context.Context, page uint64, within int, into []byte) error {
	c.mu.Lock()
	f, err := c.hold(ctx, page, within, within+len(into))
	if err != nil {
		c.mu.Unlock()
		return err
	}
	f.pins++
	c.mu.Unlock()
	copy(into, c.bytes(f)[within:])
	c.mu.Lock()
	c.unpin(f)
	c.mu.Unlock()
	return nil
}

// WriteAt writes p at off, into the cache. It fails, and writes nothing, if p does not fit
// into what is lent (ErrOutside) or is read-only (ErrReadOnly); and with an *Error,
// having written what came before, if a page that it writes a part of cannot be fetched,
// or there is no place in the cache because others cannot be written back.
func (c *Client) WriteAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0 || off > c.Size() || int64(len(p)) > c.Size()-off:
		return 0, &Error{Op: "write", Err: ErrOutside}
	case c.pool.readOnly:
		return 0, &Error{Op: "write", Err: ErrReadOnly}
	}
	return c.eachPage(p, off, c.writePage)
}

func (c *Client) writePage(ctx context.Context, page uint64, within int, from []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.holdForWriting(ctx, page, len(from) == c.page)
	if err != nil {
		return err
	}
	f.pins++
	f.dirty = true // before: no other client is given what is half old
	c.mu.Unlock()
	copy(c.bytes(f)[within:], from)
	c.mu.Lock()
	if f.state == loading {
		f.state = valid
		c.changed.Broadcast()
	}
	c.unpin(f)
	return nil
}

// Version of a page: it grows with each write, and is never that of other bytes.
type Version uint64

// Fetch fetches a page, past the cache, into a frame of registered memory of the client's
// NIC that is as large as the page, and returns its version. If it fails the frame holds
// anything. It allocates nothing, unless ctx can be cancelled.
func (c *Client) Fetch(ctx context.Context, page uint64, into ring.Frame) (Version, error) {
	if page >= c.pool.pages || into.Length != c.page {
		return 0, &Error{Op: onPage("fetch", page), Err: ErrOutside}
	}
	r, err := c.pool.read(ctx, page, 0, into, nil)
	return Version(r.Version), err
}

// Store writes a page, past the cache, if its version still is base, and returns the new
// one. A ConflictError says that it is not. If it fails otherwise the page is as it was,
// or as it was to be written, as a whole.
func (c *Client) Store(ctx context.Context, page uint64, base Version, from ring.Frame) (Version, error) {
	if page >= c.pool.pages || from.Length != c.page {
		return 0, &Error{Op: onPage("store", page), Err: ErrOutside}
	}
	ch := change{page: page, from: from, base: base}
	err := c.pool.write(ctx, &ch)
	return ch.base, err
}

// Close writes back what has been written, as Sync does, and ends the client. It ends also
// if that fails; what is then not written is lost. A second Close returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	err := c.Sync()
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

// stop ends what start has begun.
func (c *Client) stop() (err error) {
	if c.lodging != nil {
		err = c.lodging.end()
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

func closedError(op string) error { return &Error{Op: op, Err: ErrClosed} }
