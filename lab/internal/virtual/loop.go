package virtual

import (
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// look is the NIC's main loop: it asks which engines are idle and what could use
// them, the host bus first, and gives the processor the first job that it finds. If
// there is none it leaves times at which enough will have arrived.
func (m *machine) look(c *nic) {
	if c.job != noJob {
		return
	}
	jobs := [...]job{startHostTx, startHostRcv, startNetTx, armNetRcv, workHeader}
	if c.lastHost { // then it is hostRcv's turn
		jobs[0], jobs[1] = startHostRcv, startHostTx
	}
	for _, j := range jobs {
		if !m.ready(c, j) {
			continue
		}
		switch j {
		case startHostTx:
			c.reading, c.lastHost = true, true
		case startHostRcv:
			c.writing, c.lastHost = true, false
		}
		c.job, c.began = j, m.Now
		m.Set(c.decided, max(m.Now, c.notes)+m.price(c))
		return
	}
}

// price is the processor's time for its job.
func (m *machine) price(c *nic) profile.Time {
	p := &m.o.Profile.NIC
	switch c.job {
	case workHeader:
		return p.Packet
	case startHostTx:
		return p.Decision + p.Packet // it begins with a packet
	case startNetTx:
		if v, ok := c.out.send.Head(); ok && v.Sent == 0 && m.o.LogCosts {
			return p.Decision + p.LogPacket
		}
	}
	return p.Decision
}

// ready reports whether there is work for a job.
func (m *machine) ready(c *nic, j job) bool {
	f := c.in
	if j == startHostTx || j == startNetTx {
		f = c.out
	}
	if f == nil {
		return false
	}
	switch j {
	case startHostTx:
		return f.started != f.postedFrames && f.send.CanStart() && !c.reading && (c.bus.FullDuplex || !c.writing)
	case startHostRcv:
		return !c.writing && (c.bus.FullDuplex || !c.reading) && m.hostRcvReady(f)
	case startNetTx:
		return m.netTxReady(f)
	case armNetRcv:
		return f.armed != m.total && !f.receiving && f.receive.CanStart()
	}
	return f.headers != f.headersCame
}

// netTxReady reports whether netTx may move something now; if not yet, it leaves
// the time when it may.
func (m *machine) netTxReady(f *flow) bool {
	m.Set(f.events[netTxReady], events.Never)
	if f.netTx.active || f.wire.count == inFlight {
		return false
	}
	f.send.SetBacklog(f.postedFrames - f.started)
	want, ok := f.send.Threshold(f.hostTx.progress(m.Now))
	if !ok {
		return false
	}
	view, _ := f.send.Head()
	arrived := view.Arrived
	if view.Arrived < view.Length {
		arrived = f.hostTx.progress(m.Now)
		if needsEnd(f.send, view, want) {
			return false
		}
	}
	if arrived >= want {
		return true
	}
	m.Set(f.events[netTxReady], f.hostTx.reaches(want))
	return false
}

// hostRcvReady is the same question for hostRcv.
func (m *machine) hostRcvReady(f *flow) bool {
	m.Set(f.events[hostRcvReady], events.Never)
	if f.hostRcv.active || f.headers <= f.delivered {
		return false
	}
	want, ok := f.receive.Threshold(m.arrived(f))
	if !ok {
		return false
	}
	view, _ := f.receive.Head()
	arrived := view.Arrived
	if view.Arrived < view.Length {
		arrived = m.arrived(f)
		if needsEnd(f.receive, view, want) {
			return false
		}
	}
	if arrived >= want {
		return true
	}
	if f.wire.count > 0 {
		if b := m.o.Burst; b > 1 {
			want = min((want+b-1)/b*b, view.Length)
		}
		if pulse := f.wire.front(); want-f.wire.landed <= pulse.bytes {
			m.Set(f.events[hostRcvReady], pulse.reaches(want-f.wire.landed))
		}
	}
	return false
}

// greatestFrame is the payload that the firmware of 1997 was built for, in bytes (cut-through
// paper, section 2.3).
const greatestFrame = 8192

// needsEnd reports whether the firmware waits for the interrupt at the end of an arriving frame
// of which nothing has left. It polls the progress counters unless its policy would store and
// forward even the greatest frame.
func needsEnd(d *pipeline.Device, v pipeline.View, want int) bool {
	if want < v.Length || v.Sent > 0 {
		return false
	}
	v.Length = max(v.Length, greatestFrame)
	v.Arrived = v.Length - 1
	return d.Policy().Next(v) == 0
}

// arrived is the progress counter of netRcv: bytes of the frame that is arriving.
func (m *machine) arrived(f *flow) int {
	n := f.wire.landed
	if f.wire.count > 0 {
		n += f.wire.front().progress(m.Now)
	}
	if b := m.o.Burst; b > 1 && f.armed > 0 && n < f.length(f.armed-1) {
		n -= n % b
	}
	return n
}
