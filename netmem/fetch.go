package netmem

import (
	"context"

	"github.com/trapeze-nic/trapeze/ring"
)

// Fetch fetches a page, past the cache, into a frame of registered memory of the client's
// NIC that is as large as the page, and returns its version. If it fails the frame holds
// anything. It allocates nothing, unless ctx can be cancelled.
func (c *Client) Fetch(ctx context.Context, page uint64, into ring.Frame) (Version, error) {
	if page >= c.pool.pages || into.Length != c.page {
		return 0, &Error{Op: onPage("fetch", page), Err: ErrOutside}
	}
	return c.pool.fetch(ctx, page, 0, into)
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
