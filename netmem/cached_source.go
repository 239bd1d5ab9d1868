package netmem

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// cachedSource gives what a client's servers lend through its cache. Its methods may be called from several goroutines, but a page is written by one at a time.
type cachedSource struct {
	client *Client
	memory []byte
}

// Source returns a source of pages through the client's cache, for the pager of mapped memory. Mapped
// pages, what ReadAt and WriteAt use and pages of other clients then share its frames. The source is an
// io.Closer, which frees the memory of Alloc; the client stays open.
func (c *Client) Source() PageSource { return &cachedSource{client: c} }

// Size returns the end of the addresses, in bytes.
func (s *cachedSource) Size() int64 { return s.client.Size() }

// PageSize is the size of a page in bytes.
func (s *cachedSource) PageSize() int { return s.client.page }

// Alloc makes the memory that pages move to and from, once.
func (s *cachedSource) Alloc(bytes int) (_ []byte, err error) {
	if s.memory != nil {
		return nil, &Error{Op: "allocate", Err: errors.New("there is memory already")}
	}
	if s.memory, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, &Error{Op: "allocate memory for pages", Err: err}
	}
	return s.memory, nil
}

// part is a page's worth of the memory.
func (s *cachedSource) part(op string, page uint64, at int) ([]byte, error) {
	if page >= s.client.pool.pages || at < 0 || at > len(s.memory)-s.client.page {
		return nil, &Error{Op: onPage(op, page), Err: ErrOutside}
	}
	return s.memory[at:][:s.client.page], nil
}

// ReadPage reads a page to offset at of the memory, and returns its version. What was written to the
// cache by WriteAt is written back before.
func (s *cachedSource) ReadPage(ctx context.Context, page uint64, at int) (uint64, error) {
	into, err := s.part("fetch", page, at)
	if err != nil {
		return 0, err
	}
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		f, err := c.hold(ctx, page, 0, c.page)
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

// WritePage writes a page from offset at of the memory, if its version still is the one that is given.
// It returns the new one once the servers have it. A ConflictError says that it is not. If it fails
// otherwise the page is as it was, or as it was to be written, and may be written again.
func (s *cachedSource) WritePage(ctx context.Context, page uint64, at int, version uint64) (uint64, error) {
	from, err := s.part("write", page, at)
	if err != nil {
		return 0, err
	}
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.holdForWriting(ctx, page, true)
	for err == nil && f.pins > 0 {
		c.changed.Wait()
		f, err = c.holdForWriting(ctx, page, true)
	}
	switch {
	case err != nil:
		return 0, err
	case f.state == loading: // it was not in the cache
		f.change.base, f.change.blind, f.change.own = Version(version), false, true
	case f.change.base != Version(version) || f.dirty && !f.change.own:
		return 0, &Error{Op: onPage("write", page), Err: &ConflictError{page, Version(version), f.change.base}}
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

// Close frees the memory. The client stays open.
func (s *cachedSource) Close() error {
	if s.memory == nil {
		return nil
	}
	return unix.Munmap(s.memory)
}
