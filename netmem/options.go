package netmem

import (
	"cmp"
	"fmt"
	"time"
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
	// Part is the first part that is fetched of a missed page, in bytes, a power of two from 512;
	// the rest of the page comes behind it. Zero is the whole page at once.
	Part int
	// Timeout is the time that a server may take for an answer; zero is DefaultTimeout.
	// One that takes longer is taken for dead, and calls without a deadline of their own
	// wait no longer than this for one that is connecting again.
	Timeout time.Duration
	// Cooperation, if it is not nil, lets clients use each other's idle memory.
	Cooperation *Cooperation
	// Depth is the number of calls that can be under way with a server; zero is DefaultDepth.
	Depth int
	// Workers is the number of pages that are fetched ahead, or written back, at the same time;
	// zero is 8.
	Workers int
}

// Defaults of Options.
const (
	defaultCache     = 32 << 20
	defaultReadAhead = 256 << 10
	DefaultTimeout   = 2 * time.Second
	defaultWorkers   = 8
)

// leastFrames are those that a cache needs at least.
const leastFrames = 8

// check fills in the defaults, and names the option that makes no sense.
func (o *Options) check(servers int) error {
	o.Copies, o.ReadAhead = cmp.Or(o.Copies, 1), cmp.Or(o.ReadAhead, defaultReadAhead)
	o.Depth, o.Workers = cmp.Or(o.Depth, DefaultDepth), cmp.Or(o.Workers, defaultWorkers)
	o.Cache, o.Timeout = cmp.Or(o.Cache, defaultCache), cmp.Or(o.Timeout, DefaultTimeout)
	switch {
	case servers == 0:
		return optionError("the list of servers", "empty", "at least one")
	case o.Copies < 1 || o.Copies > min(maxCopies, servers):
		return optionError("Copies", o.Copies, fmt.Sprintf("1 to %d", min(maxCopies, servers)))
	case o.Copies > 1 && o.Store == nil:
		return optionError("Store", "nil", "a store of the configuration, where pages have copies")
	case o.Cache < leastFrames*MinPage:
		return optionError("Cache", o.Cache, fmt.Sprintf("at least %d pages", leastFrames))
	case o.Part < 0 || o.Part != 0 && (o.Part < 512 || o.Part&(o.Part-1) != 0):
		return optionError("Part", o.Part, "0, or powers of two from 512")
	case o.Timeout < 0:
		return optionError("Timeout", o.Timeout, "more than nothing")
	case o.Depth < 2 || o.Depth > 1024:
		return optionError("Depth", o.Depth, "2 to 1024")
	case o.Workers < 1 || o.Workers > 1024:
		return optionError("Workers", o.Workers, "1 to 1024")
	case o.Cooperation != nil:
		return o.Cooperation.check(o.Cache, o.Part)
	}
	return nil
}
