package netmem

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
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
	latency *hdrhistogram.Histogram // of fetches that a caller waited for
	near    *hdrhistogram.Histogram // of those from other clients
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

// Size returns the end of the addresses, in bytes.
func (c *Client) Size() int64 { return int64(c.pool.pages) * int64(c.page) }

// Page is the size of a page in bytes.
func (c *Client) Page() int { return c.page }

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
	f, err := c.acquire(ctx, page)
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
	f, err := c.acquireForWriting(ctx, page, len(from) == c.page)
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

// Fetch fetches a page, past the cache, into a frame of registered memory of the client's
// NIC that is as large as the page, and returns its version. If it fails the frame holds
// anything. It allocates nothing, unless ctx can be cancelled.
func (c *Client) Fetch(ctx context.Context, page uint64, into ring.Frame) (Version, error) {
	if page >= c.pool.pages || into.Length != c.page {
		return 0, &Error{Op: onPage("fetch", page), Err: ErrOutside}
	}
	r, err := c.pool.read(ctx, page, into, nil)
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

func closedError(op string) error { return &Error{Op: op, Err: ErrClosed} }

// SetDeadline sets when ReadAt, WriteAt, Sync and Close fail with os.ErrDeadlineExceeded. Calls
// that have begun before keep the deadline that they had. The zero time is never, and then only
// Options.Timeout limits calls. A fetch or write that the deadline cuts short ends the connection
// with its server, which is made again. Unless it was Close that failed, what was to be written
// back stays in the cache.
func (c *Client) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("set the deadline")
	}
	if t.IsZero() {
		c.deadline.Store(nil)
	} else {
		c.deadline.Store(&t)
	}
	return nil
}

// begin returns the context of a call, and a function that ends it. It allocates nothing where no
// deadline is set.
func (c *Client) begin() (context.Context, func()) {
	t := c.deadline.Load()
	if t == nil {
		return context.Background(), func() {}
	}
	ctx, cancel := context.WithDeadline(context.Background(), *t)
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	return ctx, func() { stop(); cancel() }
}

// usable says why a call does not go on: the client is closed, or the call's deadline has passed.
// It is asked before each wait, with the lock held.
func (c *Client) usable(ctx context.Context) error {
	if c.closed {
		return closedError("use")
	}
	if err := ctx.Err(); err != nil {
		return late(ctx, err)
	}
	return nil
}

// lodging is the part of a client's cache that other clients use: it keeps their pages, and gives them
// pages, those of the client's own as well. A server of its own answers, which has no storage.
type lodging struct {
	client  *Client
	server  *Server
	most    int // frames that may hold pages of others; guarded by the client
	summary protocol.Summary
}

// job is a piece of a worker's work: to fetch a page ahead, or to write one back.
type job struct {
	what  task
	page  uint64 // of fetchAhead
	frame *frame // of the others
}

type task uint8

const (
	fetchAhead   task = iota // a page that may be read soon
	write                    // a frame that stays
	writeAndFree             // a frame whose place is needed; with a cooperative cache, a host may keep its page
)

func (c *Client) unpin(f *frame) {
	if f.pins--; f.pins == 0 {
		c.changed.Broadcast()
	}
}
