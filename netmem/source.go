package netmem

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// poolSource gives what servers lend without a cache: pages move between the servers and one piece of
// registered memory. Its methods may be called from several goroutines, but a page is written by one
// at a time.
type poolSource struct {
	pool   *pool
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
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &poolSource{pool: p}, nil
}

// Size returns the end of the addresses, in bytes.
func (s *poolSource) Size() int64 { return int64(s.pool.pages) * int64(s.pool.page) }

// PageSize is the size of a page in bytes.
func (s *poolSource) PageSize() int { return s.pool.page }

// Alloc makes the memory that pages move to and from, once.
func (s *poolSource) Alloc(bytes int) ([]byte, error) {
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
func (s *poolSource) frame(op string, page uint64, at int) (ring.Frame, error) {
	if s.memory == nil || page >= s.pool.pages || at < 0 || at > s.memory.Size()-s.pool.page {
		return ring.Frame{}, &Error{Op: onPage(op, page), Err: ErrOutside}
	}
	return ring.Frame{Memory: s.memory, Offset: at, Length: s.pool.page}, nil
}

// ReadPage reads a page to offset at of the memory, and returns its version. If it fails,
// there is anything in that place.
func (s *poolSource) ReadPage(ctx context.Context, page uint64, at int) (uint64, error) {
	f, err := s.frame("fetch", page, at)
	if err != nil {
		return 0, err
	}
	r, err := s.pool.read(ctx, page, 0, f, nil)
	return r.Version, err
}

// WritePage writes a page from offset at of the memory, if its version still is the one
// that is given, and returns the new one. A ConflictError says that it is not. If it fails
// otherwise the page is as it was, or as it was to be written, and may be written again.
func (s *poolSource) WritePage(ctx context.Context, page uint64, at int, version uint64) (uint64, error) {
	f, err := s.frame("write", page, at)
	if err != nil {
		return 0, err
	}
	c := change{page: page, from: f, base: Version(version), own: true}
	err = s.pool.write(ctx, &c)
	return uint64(c.base), err
}

// Close ends all connections. The NIC stays open.
func (s *poolSource) Close() error {
	err := s.pool.close()
	if s.memory != nil {
		err = errors.Join(err, s.pool.fabric.free(s.memory))
	}
	return err
}
