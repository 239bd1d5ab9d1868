package netmem

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
)

// PageSource is where a pager gets pages from, and writes them back to.
type PageSource = pager.Source

// PageRunSource is a PageSource that reads pages which follow each other in one call.
type PageRunSource = pager.RunSource

// MapStats are counters of a pager.
type MapStats = pager.Stats

// RunPager is called by the command of MapOptions. The process becomes a pager, with the
// pages of the source that open gives, or the guard of one, which has no source. It returns
// when the process that has called Map has closed the mapping, or has ended and what it had
// written is written back, or when the mapping has failed: with nil if that process knows, else
// with the reason. A source that is an io.Closer is closed. The command then exits, whatever goroutines the source may have left.
//
// SIGINT, SIGTERM and SIGHUP are ignored: who stops a service, and all its processes at once,
// has the application close the mapping first. If ctx ends the mapping ends, as by a failure.
func RunPager(ctx context.Context, open func(context.Context) (PageSource, error)) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	l, err := pager.OpenLink(pager.LinkFD)
	if err != nil {
		return fmt.Errorf("%w; a pager is started by who maps memory, and not by hand", err)
	}
	defer l.Close()
	return pager.Serve(ctx, l, open)
}
