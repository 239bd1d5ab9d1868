package coherence

import "github.com/trapeze-nic/trapeze/lab/internal/profile"

// Kind of a transaction.
type Kind string

// Kinds of transactions. The last three are on PCIe.
const (
	Invalidate Kind = "invalidate" // other copies of a block go; address only
	Read       Kind = "read"       // a block, from memory or from the cache that owns it
	ReadOwn    Kind = "read-own"   // a block, and other copies go
	Retry      Kind = "retry"      // a read that the owner refuses until it has written back; address only
	Castout    Kind = "write-back" // an owner's block to memory
	Write      Kind = "write"      // a block, and cached copies go
	Load       Kind = "load"       // uncached, up to a word, by the processor
	Store      Kind = "store"      // uncached, up to a word, by the processor
	DMARead    Kind = "dma-read"   // of host memory by the NIC: a round trip
	DMAWrite   Kind = "dma-write"  // of host memory by the NIC, posted
	Push       Kind = "push"       // a write-combined block into NIC memory, posted
)

// Agent is who begins a transaction.
type Agent string

// Agents.
const (
	Host Agent = "host"
	NIC  Agent = "nic"
)

// Side is one of the two machines.
type Side string

// Sides.
const (
	Sender   Side = "sender"
	Receiver Side = "receiver"
)

// Region says what a block holds.
type Region string

// Regions of memory.
const (
	Payload    Region = "payload"
	Descriptor Region = "descriptor"
	Queue      Region = "queue"    // a cacheable queue between host and NIC
	Pointers   Region = "pointers" // head and tail of the queue
	Token      Region = "token"    // the doorbell's, or where it waits in memory
	Tags       Region = "tags"     // an eager region's status bits
)

// Transaction is one transfer over a bus.
type Transaction struct {
	Side   Side   `json:"side"`
	Agent  Agent  `json:"agent"`
	Kind   Kind   `json:"kind"`
	Region Region `json:"region"`
	Block  int    `json:"block"` // in its region
	Bytes  int    `json:"bytes" help:"0 if it is an address alone"`
	Start  Time   `json:"start_us"`
	End    Time   `json:"end_us"`
}

// phases hold what a transaction does once it has the bus.
type phases struct {
	kind    Kind // empty: there is nothing left to do
	agent   Agent
	block   int // of the host's memory
	bytes   int
	latency Time // of who supplies the data
	data    int  // cycles
}

// request waits for the bus. do runs when it is granted, and not before: what a
// transaction does depends on what others did to the block in the meantime.
type request struct {
	at    Time
	do    func() phases
	joins bool // it goes on with a burst of the NIC, which has the bus
}

// bus carries one transaction at a time, in the order of the requests unless a bridge says
// otherwise: arbitration, address, data. Nothing overlaps.
type bus struct {
	*profile.SystemBus
	free    Time
	waiting []request // of the NIC, whose requests no agent waits for
	carried func(p phases, begin, end Time)
	arbiter
}

// edge is the next edge of the bus clock, from t on.
func (b *bus) edge(t Time) Time { return (t + b.Cycle - 1) / b.Cycle * b.Cycle }

// grant returns when a request gets the bus if no other is before it. All else sees the
// transaction from then on.
func (b *bus) grant(at Time) Time { return max(b.edge(at), b.free) }

// span is the time that a transaction has the bus.
func (b *bus) span(p phases) Time {
	return b.Cycles(b.Arbitration+b.Address+p.data) + b.edge(p.latency)
}

func (b *bus) perform(r request) Time {
	begin := b.grant(r.at)
	p := r.do()
	if p.kind == "" {
		return r.at
	}
	end := begin + b.span(p)
	b.free, b.last = end, end-begin
	b.carried(p, begin, end)
	return end
}

func (b *bus) next() {
	b.row = 0
	r := b.waiting[0]
	b.waiting = b.waiting[1:]
	b.perform(r)
}

// post requests a transaction that no agent waits for. Requests are posted in the order of
// their times.
func (b *bus) post(at Time, do func() phases) {
	b.waiting = append(b.waiting, request{at: at, do: do})
}

// settle carries out what has got the bus at t.
func (b *bus) settle(t Time) {
	for len(b.waiting) > 0 && b.grant(b.waiting[0].at)+b.pause() <= t {
		b.next()
	}
}

// run carries out a transaction that is requested at a time, after those before it, and
// returns its end.
func (b *bus) run(at Time, do func() phases) Time {
	for len(b.waiting) > 0 && b.before(b.waiting[0], at) {
		b.next()
	}
	b.row++
	return b.perform(request{at: at, do: do})
}

// drain carries out all that was posted, and returns the end of the last of it, t at least.
func (b *bus) drain(t Time) Time {
	for len(b.waiting) > 0 {
		b.next()
	}
	return max(t, b.free)
}

// timeout bounds the wait of a processor for a bus. A longer one counts as starving: it is some
// hundred transactions.
const timeout = Time(1e8)

// arbiter decides between the processor and what the NIC has asked for.
type arbiter struct {
	first   profile.First // Empty: in turn.
	queue   int           // Transactions of the processor that go one after the other, with ProcessorFirst.
	row     int           // Those that have.
	last    Time          // The span of the last transaction.
	starved bool          // The processor has waited for too long.
}

// pause is the time without a use of the processor for the bus after which the NIC gets in.
func (b *bus) pause() Time {
	if b.first == profile.ProcessorFirst {
		return b.last
	}
	return 0
}

// before reports whether a request of the NIC goes before one that the processor makes at a time.
//
// A processor that runs ahead of its memory keeps the bridge's queue filled: the pauses
// between its transactions are too short for another. So the NIC gets in where one fits
// into a pause, or when as many as the queue holds have gone.
func (b *bus) before(r request, at Time) bool {
	grant := b.grant(r.at)
	switch {
	case b.starved || grant > at && grant-at > timeout:
		b.starved = true
		return false
	case r.joins, b.row >= b.queue && b.first == profile.ProcessorFirst:
		return r.at <= b.grant(at)
	case b.first == profile.ProcessorFirst:
		return grant+b.pause() <= at
	case b.first == profile.DMAFirst:
		return r.at <= b.grant(at)
	}
	return r.at <= at
}
