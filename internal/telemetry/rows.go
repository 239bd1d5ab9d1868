package telemetry

// PageRows bounds the rows of an answer: those of PageRows endpoints fit into one
// packet.
const PageRows = 128

// Page is a part of a list.
type Page[R any] struct {
	Rows []R `json:"rows"`
	// Next is where the next part begins: the parameter behind the port. It is null behind the
	// last one.
	Next *uint64 `json:"next"`
}

// NewPage returns the rows from one on whose key is at least from. The rows are in the order of
// their keys.
func NewPage[R any](rows []R, key func(R) uint64, from uint64) Page[R] {
	p := Page[R]{Rows: []R{}}
	for _, r := range rows {
		k := key(r)
		switch {
		case k < from:
		case len(p.Rows) == PageRows:
			p.Next = &k
			return p
		default:
			p.Rows = append(p.Rows, r)
		}
	}
	return p
}

// Endpoint is a VI, ring or channel, as the driver knows it: no device is asked.
type Endpoint struct {
	Number      uint64 `json:"vi"`
	Kind        string `json:"kind"`
	Reliability string `json:"reliability"`
	MaxTransfer uint32 `json:"max_transfer_bytes"`
	// Depths are those of the two queues; counts, of VIs, are of descriptors, since the VI was
	// made.
	SendDepth  int      `json:"send_depth"`
	RecvDepth  int      `json:"recv_depth"`
	SendPosted uint64   `json:"send_posted"`
	SendTaken  uint64   `json:"send_taken"`
	RecvPosted uint64   `json:"recv_posted"`
	RecvTaken  uint64   `json:"recv_taken"`
	Latency    *Latency `json:"latency,omitempty"`
}

// SendQueued and RecvQueued count descriptors that are posted and not taken back.
func (e *Endpoint) SendQueued() uint64 { return e.SendPosted - e.SendTaken }

func (e *Endpoint) RecvQueued() uint64 { return e.RecvPosted - e.RecvTaken }

// Latency says how long sends took from post to completion, of those that were measured.
type Latency struct {
	Samples uint64 `json:"samples"`
	SumNS   int64  `json:"sum_ns"`
	// P50 to Max are in nanoseconds.
	P50 int64 `json:"p50_ns"`
	P99 int64 `json:"p99_ns"`
	Max int64 `json:"max_ns"`
}

// EndpointCounts are the number of an endpoint, its SendPosted, SendTaken, RecvPosted and
// RecvTaken, and what Latency has, in its order; zeros if none was measured. A list of numbers is
// written and read in a fraction of the time that objects take.
type EndpointCounts [10]uint64

// Counts are the counts of an endpoint.
func (e *Endpoint) Counts() EndpointCounts {
	c := EndpointCounts{e.Number, e.SendPosted, e.SendTaken, e.RecvPosted, e.RecvTaken}
	if l := e.Latency; l != nil {
		c[5], c[6], c[7], c[8], c[9] = l.Samples, uint64(l.SumNS), uint64(l.P50), uint64(l.P99), uint64(l.Max)
	}
	return c
}

// Endpoint has the counts, and nothing else.
func (c *EndpointCounts) Endpoint() Endpoint {
	e := Endpoint{Number: c[0], SendPosted: c[1], SendTaken: c[2], RecvPosted: c[3], RecvTaken: c[4]}
	if c[5] > 0 {
		e.Latency = &Latency{Samples: c[5], SumNS: int64(c[6]), P50: int64(c[7]), P99: int64(c[8]), Max: int64(c[9])}
	}
	return e
}

// Histogram has the times of the sends of an endpoint that were measured.
type Histogram struct {
	Latency
	// Buckets have the longest time in nanoseconds and a count, those with none left out, in the
	// order of times. A bucket is at most 1/32 of its time wide.
	Buckets [][2]uint64 `json:"buckets"`
}

// ProgramMap is a map of a control program, with some of its entries.
type ProgramMap struct {
	// Number is its place in the image, of Maps that there are.
	Number     uint64     `json:"map"`
	Maps       int        `json:"maps"`
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	KeyBytes   uint32     `json:"key_bytes"`
	ValueBytes uint32     `json:"value_bytes"`
	Room       uint32     `json:"room"`
	Entries    []MapEntry `json:"entries"`
	// More says that there are entries which the answer had no room for.
	More bool `json:"more"`
}

// MapEntry is an entry of a map in hexadecimal, in the order of memory.
type MapEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// EndpointState has what a device says of an endpoint, beside what the driver knows.
type EndpointState struct {
	Endpoint
	State         string `json:"state"`
	RemoteMAC     string `json:"remote_mac"`
	RemoteVI      uint32 `json:"remote_vi"`
	SendCompleted uint32 `json:"send_completed"`
	RecvCompleted uint32 `json:"recv_completed"`
}

// CQ is a completion queue.
type CQ struct {
	Number  uint64 `json:"cq"`
	Entries int    `json:"entries"`
	// Promised counts the entries that the queues that complete here can need.
	Promised int `json:"promised"`
}

// Region is registered memory.
type Region struct {
	Handle uint64 `json:"handle"`
	Bytes  uint64 `json:"bytes"`
	Ptag   uint32 `json:"ptag"`
	Eager  bool   `json:"eager"`
}

// Transfers are records of a DMA log, oldest first. Beside the program that has the NIC one
// client at a time can have them.
type Transfers struct {
	// Records have packet, engine (0 hostTx, 1 netTx, 2 netRcv, 3 hostRcv), start and end in
	// nanoseconds of the device's clock, and bytes.
	Records [][5]int64 `json:"records"`
	// Lost counts records for which there was no room; it wraps.
	Lost uint32 `json:"lost"`
}

// Capture answers who asks for the frames of a NIC. They come in memory that is lent with it,
// which is a ring of package framering.
type Capture struct {
	// Refused says why nothing is lent; empty if something is.
	Refused string `json:"refused"`
}

// Counts are the counters of a struct by name.
func Counts(stats any) map[string]uint64 {
	m := map[string]uint64{}
	for _, v := range Values(stats) {
		m[v.Name] = v.Value
	}
	return m
}
