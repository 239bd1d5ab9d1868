package virtual

import (
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// look is the NIC's main loop: it asks which engines are idle and what could use
// them, the host bus first, and gives the processor the first job that it finds. If
// there is none it leaves times at which enough will have arrived.
func (m *machine) look(n int) {
	c := &m.nics[n]
	if c.job != noJob {
		return
	}
	for j := startHost; j < jobs; j++ {
		if m.offer(n, j) {
			c.began = m.Now
			m.Set(c.decided, max(m.Now, c.notes)+m.price(n))
			return
		}
	}
}

// price is the processor's time for a job.
func (m *machine) price(n int) profile.Time {
	p, c := &m.o.Profile.NIC, &m.nics[n]
	first := false
	if c.job == startNetTx && m.o.LogCosts {
		v, ok := m.flows[c.flow].send.Head()
		first = ok && v.Sent == 0
	}
	switch {
	case c.job == workHeader:
		return p.Packet
	case first:
		return p.Decision + p.LogPacket
	case c.job == startHost && c.incoming:
		return p.Decision + p.Packet // it begins with a packet
	}
	return p.Decision
}

// offer gives the processor job j if there is work for it.
func (m *machine) offer(n int, j job) bool {
	c := &m.nics[n]
	out, in := c.out, c.in
	switch j {
	case startHost:
		first := c.lastHost // then it is hostRcv's turn
		if first {
			return m.offerHostRcv(c, in) || m.offerHostTx(c, out)
		}
		return m.offerHostTx(c, out) || m.offerHostRcv(c, in)
	case startNetTx:
		if out >= m.flowCount || !m.netTxReady(out) {
			return false
		}
		c.job, c.flow = startNetTx, out
		return true
	case armNetRcv:
		if in >= m.flowCount || m.flows[in].armed == m.total || m.flows[in].receiving || !m.flows[in].receive.CanStart() {
			return false
		}
		c.job, c.flow = armNetRcv, in
		return true
	case workHeader:
		if in >= m.flowCount || m.flows[in].headers == m.flows[in].headersCame {
			return false
		}
		c.job, c.flow = workHeader, in
		return true
	}
	return false
}

// busFree reports whether the bus takes a transfer in that direction.
func (m *machine) busFree(c *nic, bus *profile.Bus, read bool) bool {
	if bus.FullDuplex {
		return read && !c.reading || !read && !c.writing
	}
	return !c.reading && !c.writing
}

func (m *machine) bus(n int) *profile.Bus {
	if n%2 == 0 {
		return &m.o.Profile.Sender
	}
	return &m.o.Profile.Receiver
}

func (m *machine) offerHostTx(c *nic, i int) bool {
	if i >= m.flowCount {
		return false
	}
	f := &m.flows[i]
	if f.started == f.postedFrames || !f.send.CanStart() || !m.busFree(c, m.bus(f.from), true) {
		return false
	}
	c.job, c.flow, c.incoming, c.lastHost = startHost, i, true, true
	c.reading = true
	return true
}

func (m *machine) offerHostRcv(c *nic, i int) bool {
	if i >= m.flowCount || !m.busFree(c, m.bus(m.flows[i].to), false) || !m.hostRcvReady(i) {
		return false
	}
	c.job, c.flow, c.incoming, c.lastHost = startHost, i, false, false
	c.writing = true
	return true
}

// netTxReady reports whether netTx may move something now; if not yet, it leaves
// the time when it may.
func (m *machine) netTxReady(i int) bool {
	f := &m.flows[i]
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
func (m *machine) hostRcvReady(i int) bool {
	f := &m.flows[i]
	m.Set(f.events[hostRcvReady], events.Never)
	if f.hostRcv.active || f.headers <= f.delivered {
		return false
	}
	want, ok := f.receive.Threshold(m.arrived(i))
	if !ok {
		return false
	}
	view, _ := f.receive.Head()
	arrived := view.Arrived
	if view.Arrived < view.Length {
		arrived = m.arrived(i)
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
func (m *machine) arrived(i int) int {
	f := &m.flows[i]
	n := f.wire.landed
	if f.wire.count > 0 {
		n += f.wire.front().progress(m.Now)
	}
	if b := m.o.Burst; b > 1 && f.armed > 0 && n < f.length(f.armed-1) {
		n -= n % b
	}
	return n
}
