package netmem

import (
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// Stats are what a client has counted since it was opened.
type Stats struct {
	// Hits and Misses are reads and writes of a page that found it in the cache, and
	// that had to fetch it.
	Hits, Misses uint64
	// Ahead are pages that were fetched before anybody wanted them, and AheadUsed those
	// of them that somebody wanted.
	Ahead, AheadUsed uint64
	// WrittenBack pages, and Conflicts with those of other clients.
	WrittenBack, Conflicts uint64
	// Fetches and Writes are calls of servers that succeeded, Failures connections that
	// broke, Failovers pages for which another server was asked, and Repaired pages that
	// were copied to a server that had missed them.
	Fetches, Writes, Failures, Failovers, Repaired uint64
	// Median and P99 of the time that a miss took, exact to 1/64 and at most a minute.
	Median, P99 time.Duration
	// Servers says of each whether it is connected and has all of its pages.
	Servers []ServerState
}

// ServerState is how a client sees a server.
type ServerState struct {
	Address string
	// Connected, and Complete: it has all pages that it should have.
	Connected, Complete bool
	// Err says why it is not connected.
	Err error
}

// Stats returns what has been counted.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	s := c.stats
	s.Median = c.latency.percentile(50)
	s.P99 = c.latency.percentile(99)
	c.mu.Unlock()
	n := &c.pool.counters
	s.Fetches, s.Writes, s.Failures = n.fetches.Load(), n.writes.Load(), n.failures.Load()
	s.Failovers, s.Repaired = n.failovers.Load(), n.repaired.Load()
	v := c.pool.view.Load()
	for _, k := range c.pool.links {
		l, err := k.use()
		complete := l != nil && l.record.Load().Pool == v.Pool && (c.pool.alone() || v.State(k.number) == protocol.Member && v.has(k))
		s.Servers = append(s.Servers, ServerState{k.name, l != nil, complete, err})
	}
	return s
}
