package netmem

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Stats has the counts of a client since it was opened.
type Stats struct {
	Hits        uint64 `json:"hits" help:"Reads and writes of a page that found it in the cache." unit:"accesses"`
	Misses      uint64 `json:"misses" help:"Reads and writes of a page that had to fetch it." unit:"accesses"`
	Ahead       uint64 `json:"ahead" help:"Pages that were fetched before they were needed." unit:"pages"`
	AheadUsed   uint64 `json:"ahead_used" help:"Pages fetched ahead that were needed later." unit:"pages"`
	WrittenBack uint64 `json:"written_back" help:"Pages that were written to the servers." unit:"pages"`
	Conflicts   uint64 `json:"conflicts" help:"Pages that another client had written first." unit:"pages"`
	Fetches     uint64 `json:"fetches" help:"Fetches from servers that succeeded." unit:"fetches"`
	Direct      uint64 `json:"direct" help:"Of these, fetches that copied the page out of the server's memory." unit:"fetches"`
	Writes      uint64 `json:"writes" help:"Writes to servers that succeeded." unit:"writes"`
	Failures    uint64 `json:"failures" help:"Connections with servers that broke." unit:"connections"`
	Failovers   uint64 `json:"failovers" help:"Calls of servers that failed." unit:"calls"`
	Repaired    uint64 `json:"repaired" help:"Pages that were copied to a server that had missed them." unit:"pages"`
	FromHosts   uint64 `json:"from_hosts" help:"Pages that came from another client of a cooperative cache." unit:"pages"`
	Sent        uint64 `json:"sent" help:"Pages that left the cache for another client's." unit:"pages"`
	Duplicates  uint64 `json:"duplicates" help:"Pages that left the cache while another client had them." unit:"pages"`
	Discarded   uint64 `json:"discarded" help:"Pages that left the cache for nowhere: too old, no longer the newest, or no host had room." unit:"pages"`
	Missing     uint64 `json:"missing" help:"Pages that another client should have had, and had not." unit:"pages"`
	Wrong       uint64 `json:"wrong" help:"Pages from another client that were not what their server says." unit:"pages"`
	Kept        uint64 `json:"kept" help:"Pages of other clients in this cache." unit:"pages" kind:"gauge"`
	Given       uint64 `json:"given" help:"Pages that this client gave others." unit:"pages"`
	// Median and P99 have two decimal digits, and are at most a minute.
	Median time.Duration `json:"median" help:"Median of the time that a miss took." unit:"nanoseconds" kind:"gauge"`
	P99    time.Duration `json:"p99" help:"99th percentile of the time that a miss took." unit:"nanoseconds" kind:"gauge"`
	// HostMedian and HostP99 are of the misses that another client answered.
	HostMedian time.Duration `json:"host_median" help:"Median of the time that a page from another client took." unit:"nanoseconds" kind:"gauge"`
	HostP99    time.Duration `json:"host_p99" help:"99th percentile of the time that a page from another client took." unit:"nanoseconds" kind:"gauge"`
	// Hosts says of each other client of a cooperative cache how it did.
	Hosts []HostState `json:"-"`
	// Servers says of each whether it is connected and has all of its pages.
	Servers []ServerState `json:"-"`
}

// ServerState describes a server as a client sees it.
type ServerState struct {
	Address string
	// Connected, and Complete: it has all pages that it should have.
	Connected, Complete bool
	// Err says why it is not connected.
	Err error
}

// HostState says how a client sees another one that lends its memory.
type HostState struct {
	Address   string `json:"address"`
	Connected bool   `json:"connected"`
	// Err says what it has done wrong last (ErrWrongPage, ErrNotKept), or why it is not connected.
	Err error `json:"-"`
	// Wrong pages were not as their server says; it took those that were Sent, and not those Refused.
	Hits    uint64 `json:"hits"`
	Missing uint64 `json:"missing" help:"pages that it should have had"`
	Wrong   uint64 `json:"wrong"`
	Sent    uint64 `json:"sent"`
	Refused uint64 `json:"refused"`
	Broken  uint64 `json:"broken" help:"connections with it"`
}

// longestLatency is the limit of the histograms: longer times count as long.
const longestLatency = time.Minute

// newLatencies returns a histogram of times. Its owner locks it.
func newLatencies() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longestLatency), 2) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(longestLatency, max(1, d)))) // it fails for what is beyond its limits
}

// percentile returns a time that p % of those recorded do not exceed; 0 if there are none.
func percentile(h *hdrhistogram.Histogram, p float64) time.Duration {
	return time.Duration(h.ValueAtPercentile(p))
}
