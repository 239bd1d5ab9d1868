package netmem

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// Options are the choices of a client. The zero value has the defaults.
type Options struct {
	// Copies is on how many servers each page is, 1 to 8 and to as many as there are
	// servers; zero is 1. All clients of the same servers have the same. More than 1 need a Store.
	Copies int
	// Store has the configuration of a pool with copies: which servers have all of their pages. It is the same for all
	// clients of the servers.
	Store Store
	// Cache is the room for pages here, in bytes, at least 8 pages; zero is
	// 32 MiB.
	Cache int64
	// ReadAhead is the number of bytes that are fetched ahead of a sequential reader;
	// zero is 256 KiB, and none is less than zero. It is bounded by a quarter
	// of the cache.
	ReadAhead int
	// Timeout is the time that a server may take for an answer; zero is DefaultTimeout.
	// One that takes longer is taken for dead, and calls without a deadline of their own
	// wait no longer than this for one that is connecting again.
	Timeout time.Duration
	// Cooperation, if it is not nil, lets clients use each other's idle memory.
	Cooperation *Cooperation

	workers int // pages that are fetched ahead, or written back, at the same time; zero is defaultWorkers
}

// Defaults of Options.
const (
	defaultCache     = 32 << 20
	defaultReadAhead = 256 << 10
	DefaultTimeout   = 2 * time.Second
	defaultWorkers   = 8
)

const leastFrames = 8

func (o *Options) check(servers int) error {
	o.Copies, o.ReadAhead = cmp.Or(o.Copies, 1), cmp.Or(o.ReadAhead, defaultReadAhead)
	o.Cache, o.Timeout, o.workers = cmp.Or(o.Cache, defaultCache), cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.workers, defaultWorkers)
	switch {
	case servers == 0:
		return optionError("the list of servers", "empty", "at least one")
	case o.Copies < 1 || o.Copies > min(maxCopies, servers):
		return optionError("Copies", o.Copies, fmt.Sprintf("1 to %d", min(maxCopies, servers)))
	case o.Copies > 1 && o.Store == nil:
		return optionError("Store", "nil", "a store of the configuration, where pages have copies")
	case o.Cache < leastFrames*MinPage:
		return optionError("Cache", o.Cache, fmt.Sprintf("at least %d pages", leastFrames))
	case o.Timeout < 0:
		return optionError("Timeout", o.Timeout, "more than nothing")
	case o.Cooperation != nil:
		return o.Cooperation.check(o.Cache)
	}
	return nil
}

// Store keeps the configuration of a pool with copies: one value, which all clients of the pool reach and change by
// compare-and-swap, such as a key in etcd (package via/etcd). Both methods are linearizable.
type Store interface {
	// Get returns the value and its revision, which is 0 if there is none.
	Get(ctx context.Context) (value []byte, revision int64, err error)
	// Swap puts a value in the place of the one of a revision, or of none for 0. It does nothing if another one is
	// there by now; the caller asks for it.
	Swap(ctx context.Context, value []byte, revision int64) error
}

const maxCopies = 8

// Cooperation has clients use each other's idle memory. A page that leaves the cache of one goes to the
// client with the oldest pages, and comes from there when it is missed. Whatever another client sends is
// compared with the digest that the page's server has of it.
type Cooperation struct {
	// Hosts are the addresses of the clients that lend a part of their cache, at most 16. All clients
	// of the same pages name the same ones, in any order and in the same form.
	Hosts []string
	// Name is the discriminator at which this client lends; if it is empty it lends nothing. Hosts
	// then has this client's address, too.
	Name string
	// Lend is the part of Options.Cache that others may use, in bytes; zero is all of it. What this
	// client needs itself it takes back at once.
	Lend int64

	addresses []via.Address // of Hosts
}

func (o *Cooperation) check(cache int64) error {
	switch {
	case len(o.Hosts) == 0 || len(o.Hosts) > protocol.MaxHosts:
		return optionError("Cooperation.Hosts", fmt.Sprintf("%d long", len(o.Hosts)), fmt.Sprintf("1 to %d", protocol.MaxHosts))
	case o.Lend < 0 || o.Lend > cache:
		return optionError("Cooperation.Lend", o.Lend, "0 to the size of the cache")
	}
	return nil
}

// Pages that can be lent, in bytes, and what is lent if nothing is said.
const (
	MinPage     = protocol.MinPage
	MaxPage     = protocol.MaxPage
	DefaultPage = 8 << 10
	// DefaultName is the name under which servers and clients meet.
	DefaultName = "netmem"
	// depth is the number of requests of one client that can be under way.
	depth = 64
	// defaultReplyTimeout is the time that a client may leave replies that it has asked for.
	defaultReplyTimeout = 5 * time.Second
	// defaultStrangers is the number of clients that may be connected and have never asked for a page.
	defaultStrangers = 16
)

// ServerOptions say what a server lends. The zero value, but for Size, has the defaults
// above.
type ServerOptions struct {
	// Name is the discriminator at which clients connect.
	Name string
	// Page is the size of a page in bytes, a power of two from MinPage to MaxPage.
	Page int
	// Size is the memory that is lent, in bytes; it is rounded up to whole pages.
	Size int64
	// Span is the end of the addresses, in bytes; zero is Size. Servers that share a
	// range between them have the same span, each with less memory than that.
	Span int64
	// ReadOnly refuses writes.
	ReadOnly bool
	// Timeout is the time that a client may leave replies that it has asked for; then its
	// connection is ended, as pages that are being sent must not change. Zero is
	// 5 s.
	Timeout time.Duration
	// Strangers is the number of clients that may be connected and have never asked for a page, as each
	// takes memory: one more ends the connection of the oldest. Zero is 16.
	Strangers int
}

func (o *ServerOptions) check() error {
	o.Name, o.Page = cmp.Or(o.Name, DefaultName), cmp.Or(o.Page, DefaultPage)
	o.Timeout, o.Strangers = cmp.Or(o.Timeout, defaultReplyTimeout), cmp.Or(o.Strangers, defaultStrangers)
	o.Span = cmp.Or(o.Span, o.Size)
	most := int64(o.Page) * protocol.MaxPages
	switch {
	case o.Page < MinPage || o.Page > MaxPage || o.Page&(o.Page-1) != 0:
		return optionError("Page", o.Page, fmt.Sprintf("powers of two from %d to %d", MinPage, MaxPage))
	case o.Size <= 0 || o.Size > most:
		return optionError("Size", o.Size, fmt.Sprintf("1 to %d", most))
	case o.Span <= 0 || o.Span > most:
		return optionError("Span", o.Span, fmt.Sprintf("1 to %d", most))
	case o.Strangers < 1:
		return optionError("Strangers", o.Strangers, "at least 1")
	case o.Timeout < 0:
		return optionError("Timeout", o.Timeout, "more than nothing")
	}
	whole := func(n int64) int64 { return (n + int64(o.Page) - 1) / int64(o.Page) * int64(o.Page) }
	o.Size, o.Span = whole(o.Size), whole(o.Span)
	return nil
}
