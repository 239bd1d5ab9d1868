package virtual

import (
	"math"
	"math/rand/v2"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Kinds of what happens to a flow, by rank.
const (
	posted       = iota // the host has a frame ready
	breakIn             // the end of a frame that was given up has arrived
	hostTxEnd           // hostTx has moved its frame
	netTxEnd            // a pulse has left
	headerIn            // a control message has arrived
	pulseIn             // the last byte of a pulse has arrived
	hostRcvEnd          // a hostRcv transfer has ended
	netTxReady          // enough has arrived for netTx
	hostRcvReady        // enough has arrived for hostRcv
	hostTxNoted         // the processor has taken note that hostTx ended
	netRcvNoted         // and netRcv
	kinds
)

// move is a transfer under way: from is when its first byte moves, after the
// overhead.
type move struct {
	active  bool
	decided profile.Time // when the processor began to decide
	issued  profile.Time
	from    profile.Time
	end     profile.Time
	perByte int64
	bytes   int
	queued  int           // frames behind it, of hostTx
	view    pipeline.View // of its frame, of netTx
	burst   int           // bytes by which its progress counter grows; 0 = one by one
	first   bool          // a control message goes ahead
	began   profile.Time  // first byte of its payload, of netTx
	flowing bool          // its bytes move, of netTx
}

// progress returns the bytes moved at a time: the engine's progress counter.
func (m *move) progress(now profile.Time) int {
	if now >= m.end {
		return m.bytes
	}
	if now <= m.from {
		return 0
	}
	n := min(int(int64(now-m.from)*1000/m.perByte), m.bytes)
	if m.burst > 1 {
		n -= n % m.burst
	}
	return n
}

// reaches returns when progress will be n.
func (m *move) reaches(n int) profile.Time {
	if m.burst > 1 {
		n = (n + m.burst - 1) / m.burst * m.burst
	}
	if n >= m.bytes {
		return m.end
	}
	return m.from + profile.Time((int64(n)*m.perByte+999)/1000)
}

// inFlight bounds the pulses on the wire; the sender waits at that many.
const inFlight = 64

// wire holds the pulses of one flow between netTx and the receiver's memory.
type wire struct {
	pulses [inFlight]move
	first  int
	count  int
	landed int // bytes of the current frame that arrived with earlier pulses
}

func (w *wire) front() *move { return &w.pulses[w.first] }

// last is the place of the pulse that was pushed last.
func (w *wire) last() int { return (w.first + w.count - 1) % inFlight }

func (w *wire) push(m move) {
	w.pulses[(w.first+w.count)%inFlight] = m
	w.count++
}

// flow is one direction: two devices and their engines.
type flow struct {
	payload  int     // bytes of each frame
	lengths  []Frame // of frames that differ, the warm-up's first
	number   int
	from, to *nic
	events   [kinds]*events.Event

	send, receive *pipeline.Device

	hostTx, netTx, hostRcv move
	wire                   wire
	cost                   [dmalog.Engines]profile.Cost

	postedFrames  int // by the host, ready for the NIC
	started       int // frames given to hostTx
	leaving       int // number of the frame that netTx works on
	stalled       bool
	pulse         pipeline.Transfer // of netTx
	held          holding           // of a trunk's path
	receiving     bool              // netRcv works on a frame, or waits for one
	armed         int               // frames for which the receiver has given a buffer
	headers       int               // control messages that the receiver has worked off
	headersCame   int               // control messages that have arrived
	delivered     int
	fetchedAt     []profile.Time // when a frame's last byte came from hostTx, by buffer
	landedAt      []profile.Time // the same for netRcv
	receiveBegan  profile.Time   // first byte of the frame that is arriving
	receiveFrom   profile.Time   // first byte of its payload
	hostSendFree  profile.Time   // when the sending host's processor is free
	hostRcvFree   profile.Time
	postTime      []profile.Time
	deliveredTime []profile.Time
}

func (f *flow) length(k int) int {
	if f.lengths == nil {
		return f.payload
	}
	return f.lengths[k].Bytes
}

// job is a decision that a NIC's processor is making.
type job uint8

const (
	noJob job = iota
	startHostTx
	startHostRcv
	startNetTx
	armNetRcv
	workHeader
)

type nic struct {
	out, in  *flow // nil: it has none
	bus      *profile.Bus
	decided  *events.Event
	job      job
	began    profile.Time
	notes    profile.Time // until when the processor writes records
	lastHost bool         // the last host transfer was a hostTx
	reading  bool         // hostTx runs
	writing  bool         // hostRcv runs
	busy     profile.Time
}

type machine struct {
	events.Clock
	o         Options
	watch     *events.Event // of a trunk's watchdog
	flows     []flow
	nics      []nic
	trunk     *pipeline.Device // nil: hosts are joined by a link of their own
	total     int              // frames of each flow, warm-up included
	origin    profile.Time
	transfers int
	log       []dmalog.Record
	control   []dmalog.Record
	random    *rand.Rand // of gaps
	holds     []Hold     // of a trunk, if it is noted
	err       error      // a device refused what happened to it
}

// leastShare of a NIC's memory is left to the link's transfers, whatever the host's bus takes.
const leastShare = 1.0 / 8

// overBus is the cost of a transfer over the host's bus, which goes first at the NIC's memory.
func (m *machine) overBus(c profile.Cost) profile.Cost {
	c.PerByte = max(c.PerByte, m.o.Profile.NIC.Memory)
	return c
}

// left is the least time of a byte over the link, in femtoseconds, that the memory of a NIC allows: the host's bus leaves
// it something, which a netTx and a netRcv at once share.
func (m *machine) left(c *nic) int64 {
	all := 1e12 / float64(m.o.Profile.NIC.Memory) // bytes a millisecond
	left, users := all, 0
	if c.out != nil {
		left -= c.out.hostTx.mean(c.bus.Read)
	}
	if c.in != nil {
		left -= c.in.hostRcv.mean(c.bus.Write)
	}
	for _, f := range []*flow{c.out, c.in} {
		if f != nil && f.netTx.flowing {
			users++
		}
	}
	return int64(1e12 / max(left/float64(users), leastShare*all))
}

// mean is what a transfer over the bus takes of the memory, in bytes a millisecond: the bus's rate, also while the host holds
// the transfer up, but none during its overhead.
func (m *move) mean(bus profile.Cost) float64 {
	if !m.active {
		return 0
	}
	return 1e12 / float64(bus.PerByte) * float64(m.end-m.from) / float64(m.end-m.issued)
}

// share sets the rates of the link's transfers at a NIC, one of whose transfers has begun or ended.
func (m *machine) share(c *nic) {
	for _, f := range []*flow{c.out, c.in} {
		if f != nil && m.o.Profile.NIC.Memory != 0 && f.netTx.flowing {
			m.pace(f)
		}
	}
}

// pace sets the rate of a netTx pulse that is under way, and of the same bytes at the receiver a latency later.
func (m *machine) pace(f *flow) {
	p := &f.netTx
	perByte := max(f.cost[dmalog.NetTx].PerByte, m.left(f.from), m.left(f.to))
	if perByte == p.perByte || p.end <= m.Now {
		return
	}
	p.turn(m.Now, perByte)
	m.Set(f.events[netTxEnd], p.end)
	slot := f.wire.last()
	m.At(m.Now+m.o.Profile.Link.Latency, f.number*kinds+headerIn, func() {
		f.wire.pulses[slot].turn(m.Now, perByte)
		if f.wire.first == slot {
			m.Set(f.events[pulseIn], f.wire.front().end)
		}
		m.look(f.to)
	})
}

// turn goes on with another rate: from becomes the time at which a transfer with this rate had begun.
func (m *move) turn(now profile.Time, perByte int64) {
	if now > m.from {
		m.from = now - profile.Time(math.Ceil(float64(now-m.from)*float64(perByte)/float64(m.perByte)))
	}
	m.perByte = perByte
	m.end = max(now, m.from+profile.Cost{PerByte: perByte}.Bytes(m.bytes))
}
