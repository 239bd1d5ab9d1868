package virtual

import (
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
	from, to int     // NICs
	events   [kinds]*events.Event

	send, receive *pipeline.Device
	sendLearns    learner
	receiveLearns learner

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

// length returns the bytes of frame k.
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
	startHost
	startNetTx
	armNetRcv
	workHeader
	jobs
)

type nic struct {
	out, in  int // flows, flowCount or more for none
	decided  *events.Event
	job      job
	flow     int  // that the job is for
	incoming bool // of startHost: hostTx rather than hostRcv
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
	flowCount int
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
