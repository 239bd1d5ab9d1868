package virtual

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// fragmentHeader goes ahead of each further packet of a frame, in bytes: the route and the type
// of a Myrinet packet, and its CRC. An assumption.
const fragmentHeader = 8

// Trunk is a link between two switches that all senders share. The first switch routes as
// Myrinet does, by wormholes: it stores nothing. A packet holds the link from its first byte to
// its last, also while its sender has no bytes for it. Others wait at their own NICs,
// and have the link in turn.
type Trunk struct {
	Senders int     // 1 or more
	Slow    float64 // the first sender's bus takes so many times as long for each byte, 1 or more; 0 = 1
	// Packet is the most bytes of a packet, 1 to pipeline.MaxFrame: frames go as several, and the
	// link is free between them. 0 = a frame is one packet.
	Packet int
	// Watchdog ends a frame whose sender holds the link and moves nothing for so long.
	// 0 = never. A receiver without a buffer holds a frame up, too, and is waited for.
	Watchdog profile.Time
}

// Sender sums one sender of a trunk up, measured frames only.
type Sender struct {
	Latency    profile.Time `json:"latency_us" help:"mean of the frames that arrived"`
	Longest    profile.Time `json:"longest_us" help:"the longest of them"`
	Bandwidth  float64      `json:"bandwidth_mb_s" help:"over the second half of the frames"`
	Waited     profile.Time `json:"waited_us" help:"its netTx waited for the trunk, all frames together"`
	Held       profile.Time `json:"held_us" help:"its frames held the trunk"`
	Idle       profile.Time `json:"held_idle_us" help:"of that no byte of them moved"`
	Pulses     float64      `json:"netTx_per_frame"`
	CutThrough int          `json:"cut_through" help:"frames that began to leave while hostTx still brought them"`
	Lost       int          `json:"lost" help:"frames that the watchdog ended"`
}

// Hold is one packet's time on the trunk.
type Hold struct {
	Flow       int // number of the sender
	Frame      int
	Start, End profile.Time
	Lost       bool // the watchdog ended it
}

// holding has the state of a flow at a trunk.
type holding struct {
	arrived int          // of the packet in the switch.
	since   profile.Time // the packet waits for the sink, or has it.
	moves   profile.Time // the pulse began to move.
	dropped int          // frame whose rest goes no farther than the switch, -1 for none.
	lost    map[int]bool // frames that were given up.

	waited, held, moved profile.Time
	pulses, cut         int
}

func (m *machine) newTrunk() (err error) {
	t := m.o.Trunk
	// The first switch has a source for each sender, and one sink.
	if m.trunk, err = pipeline.NewPaths(func() pipeline.Policy { return pipeline.Eager{MinPulse: 1} },
		pipeline.Shape{Sources: t.Senders, Buffers: 1}); err != nil {
		return err
	}
	for i := range m.flows {
		m.flows[i].held = holding{dropped: -1, lost: map[int]bool{}}
	}
	if t.Slow > 1 {
		cost := &m.flows[0].cost[dmalog.HostTx]
		cost.PerByte = min(int64(float64(cost.PerByte)*t.Slow), maxPerByte)
	}
	return nil
}

// starts reports whether a packet starts with the pulse that netTx has.
func (m *machine) starts(f *flow) bool {
	t, n := &f.pulse, m.o.Trunk.Packet
	return t.Offset == 0 || n > 0 && t.Offset%n == 0
}

// enter brings a pulse to the switch, from where it goes on when its packet has the sink.
func (m *machine) enter(f *flow) {
	h := &f.held
	if f.leaving >= m.o.Warmup {
		h.pulses++
	}
	if f.leaving == h.dropped {
		f.netTx.end = f.netTx.from + profile.Cost{PerByte: f.netTx.perByte}.Bytes(f.netTx.bytes)
		m.Set(f.events[netTxEnd], f.netTx.end)
		return
	}
	path := m.trunk.Source(f.number)
	if m.starts(f) {
		length := f.payload - f.pulse.Offset
		if n := m.o.Trunk.Packet; n > 0 {
			length = min(length, n)
		}
		_, err := path.Start(length)
		m.note(err)
		h.arrived, h.since = 0, m.Now
	}
	h.arrived += f.pulse.Bytes
	m.note(path.Arrived(h.arrived))
	m.serve()
}

// serve lets the pulse go that has the sink.
func (m *machine) serve() {
	i, _, ok := m.trunk.Serve()
	if !ok {
		return
	}
	f := &m.flows[i]
	h := &f.held
	m.Set(m.watch, events.Never)
	if m.starts(f) {
		if f.leaving >= m.o.Warmup {
			h.waited += m.Now - h.since
		}
		h.since = m.Now
	}
	f.netTx.from = max(f.netTx.from, m.Now)
	m.depart(f)
}

// passes takes note that a pulse begins to pass the trunk.
func (m *machine) passes(f *flow, begin profile.Time) {
	f.held.moves = begin
	if f.pulse.Offset == 0 && f.leaving >= m.o.Warmup && f.hostTx.active && f.leaving == f.started-1 {
		f.held.cut++
	}
}

// passed takes note that a netTx pulse has ended.
func (m *machine) passed(f *flow) {
	h := &f.held
	if f.leaving == h.dropped {
		if f.pulse.Last {
			h.dropped = -1
		}
		return
	}
	m.note(m.trunk.Served())
	if f.leaving >= m.o.Warmup {
		h.moved += m.Now - h.moves
	}
	if f.pulse.Ends {
		m.free(f, false)
	} else if w := m.o.Trunk.Watchdog; w > 0 {
		m.Set(m.watch, m.Now+w)
	}
}

// free ends the time of a flow on the trunk, and gives it to the next.
func (m *machine) free(f *flow, lost bool) {
	if frame := f.leaving - m.o.Warmup; frame >= 0 {
		f.held.held += m.Now - f.held.since
		if m.o.Log {
			m.holds = append(m.holds, Hold{f.number, frame, f.held.since - m.origin, m.Now - m.origin, lost})
		}
	}
	m.serve()
}

// watchdog ends the frame whose sender holds the trunk and has no bytes for it.
func (m *machine) watchdog() {
	i, held := m.trunk.Holder()
	if !held {
		return
	}
	_, err := m.trunk.Source(i).Abort()
	m.note(err)
	f := &m.flows[i]
	f.held.dropped, f.held.lost[f.leaving] = f.leaving, true
	// All that was sent of it is there before.
	m.Set(f.events[breakIn], m.Now+m.o.Profile.Link.Latency)
	m.free(f, true)
}

// breakOff is the end of such a frame at the receiver: hostRcv moves what has come of it.
func (m *machine) breakOff(f *flow) {
	m.progress(f.receive, f.wire.landed)
	before := f.receive.Frames()
	_, err := f.receive.Abort()
	m.note(err)
	f.receiving = false
	f.landedAt[(f.armed-1)%len(f.landedAt)] = m.Now
	m.record(f, dmalog.NetRcv, f.armed-1, f.receiveBegan, m.Now, f.wire.landed)
	if f.receive.Frames() < before {
		m.deliver(f)
	}
}

func (m *machine) note(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *machine) sender(f *flow) Sender {
	s := Sender{Bandwidth: m.bandwidth(f), Waited: f.held.waited, Held: f.held.held, Idle: f.held.held - f.held.moved,
		Pulses: float64(f.held.pulses) / float64(m.o.Count), CutThrough: f.held.cut}
	for k := m.o.Warmup; k < m.total; k++ {
		if f.held.lost[k] {
			s.Lost++
			continue
		}
		took := f.deliveredTime[k] - f.postTime[k]
		s.Latency += took
		s.Longest = max(s.Longest, took)
	}
	if arrived := m.o.Count - s.Lost; arrived > 0 {
		s.Latency /= profile.Time(arrived)
	}
	return s
}
