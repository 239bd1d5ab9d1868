package netmem

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// source gives what servers lend to a pager, without a cache, or through that of a client. Pages move to and from its memory. Its
// methods may be called from several goroutines, but a page is written by one at a time.
type source struct {
	pool   *pool
	client *Client // nil without a cache
	memory *via.Memory
}

// OpenSource connects with servers as Open does, for pages without a cache. Of the options those about
// the cache are ignored. The source is an io.Closer, which ends the connections.
func OpenSource(ctx context.Context, nic *via.NIC, servers []string, o Options) (PageSource, error) {
	if err := nic.Check("open network memory"); err != nil {
		return nil, err
	}
	p, err := openServers(ctx, nic, servers, &o)
	if err != nil {
		return nil, err
	}
	return &source{pool: p}, nil
}

// Source returns a source of pages through the client's cache, for the pager of mapped memory. Mapped
// pages, what ReadAt and WriteAt use and pages of other clients then share its frames. The source is an
// io.Closer, which frees the memory of Alloc; the client stays open.
func (c *Client) Source() PageSource { return &source{pool: c.pool, client: c} }

// Size returns the end of the addresses, in bytes.
func (s *source) Size() int64 { return int64(s.pool.pages) * int64(s.pool.page) }

// PageSize is the size of a page in bytes.
func (s *source) PageSize() int { return s.pool.page }

// Alloc makes the memory that pages move to and from, once.
func (s *source) Alloc(bytes int) ([]byte, error) {
	if s.memory != nil {
		return nil, &Error{Op: "allocate", Err: errors.New("there is memory already")}
	}
	m, err := s.pool.fabric.alloc(context.Background(), bytes, via.MemoryAttributes{})
	if err != nil {
		return nil, &Error{Op: "allocate memory for pages", Err: err}
	}
	s.memory = m
	return m.Bytes(), nil
}

// frame is a page's worth of the memory.
func (s *source) frame(op string, page uint64, at int) (ring.Frame, error) {
	if s.memory == nil || page >= s.pool.pages || at < 0 || at > s.memory.Size()-s.pool.page {
		return ring.Frame{}, &Error{Op: onPage(op, page), Err: ErrOutside}
	}
	return ring.Frame{Memory: s.memory, Offset: at, Length: s.pool.page}, nil
}

// ReadPage reads a page to offset at of the memory, and returns its version. If it fails,
// there is anything in that place. What was written to the cache by WriteAt is written back before.
func (s *source) ReadPage(ctx context.Context, page uint64, at int) (uint64, error) {
	f, err := s.frame("fetch", page, at)
	switch {
	case err != nil:
		return 0, err
	case s.client != nil:
		return s.client.readTo(ctx, page, f.Bytes())
	}
	r, err := s.pool.read(ctx, page, f, nil)
	return r.Version, err
}

// WritePage writes a page from offset at of the memory, if its version still is the one
// that is given, and returns the new one once the servers have it. A ConflictError says that it is not. If it fails
// otherwise the page is as it was, or as it was to be written, and may be written again.
func (s *source) WritePage(ctx context.Context, page uint64, at int, version uint64) (uint64, error) {
	f, err := s.frame("write", page, at)
	switch {
	case err != nil:
		return 0, err
	case s.client != nil:
		return s.client.writeFrom(ctx, page, f.Bytes(), Version(version))
	}
	c := change{page: page, from: f, base: Version(version), own: true}
	err = s.pool.write(ctx, &c)
	return uint64(c.base), err
}

// Close ends the connections of a source of its own, and frees the memory. NIC and client stay open.
func (s *source) Close() (err error) {
	if s.client == nil {
		err = s.pool.close()
	}
	if s.memory != nil {
		err = errors.Join(err, s.pool.fabric.free(s.memory))
	}
	return err
}

// readTo is ReadPage through the cache.
func (c *Client) readTo(ctx context.Context, page uint64, into []byte) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		f, err := c.acquire(ctx, page)
		switch {
		case err != nil:
			return 0, err
		case f.state != valid || f.dirty && f.pins > 0:
			c.changed.Wait()
		case f.dirty:
			if err := c.writeBack(ctx, f); err != nil && !errors.Is(err, ErrConflict) {
				return 0, err
			}
		default:
			version := f.change.base
			f.pins++
			c.mu.Unlock()
			copy(into, c.bytes(f))
			c.mu.Lock()
			same := !f.dirty && f.change.base == version
			if c.unpin(f); same {
				return uint64(version), nil
			}
		}
	}
}

// writeFrom is WritePage through the cache.
func (c *Client) writeFrom(ctx context.Context, page uint64, from []byte, version Version) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.acquireForWriting(ctx, page, true)
	for err == nil && f.pins > 0 {
		c.changed.Wait()
		f, err = c.acquireForWriting(ctx, page, true)
	}
	switch {
	case err != nil:
		return 0, err
	case f.state == loading: // it was not in the cache
		f.change.base, f.change.blind, f.change.own = version, false, true
	case f.change.base != version || f.dirty && !f.change.own:
		return 0, &Error{Op: onPage("write", page), Err: &ConflictError{page, version, f.change.base}}
	}
	f.change.own, f.dirty = true, true
	f.pins++
	c.mu.Unlock()
	copy(c.bytes(f), from)
	c.mu.Lock()
	f.state = valid
	c.unpin(f)
	if err := c.writeBack(ctx, f); err != nil {
		return 0, err
	}
	return uint64(f.change.base), nil
}
