package virtual

import (
	"math"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
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
	want, ready := enough(f.send, f.hostTx.progress(m.Now))
	if !ready && want > 0 {
		m.Set(f.events[netTxReady], f.hostTx.reaches(want))
	}
	return ready
}

// hostRcvReady is the same question for hostRcv.
func (m *machine) hostRcvReady(f *flow) bool {
	m.Set(f.events[hostRcvReady], events.Never)
	if f.hostRcv.active || f.headers <= f.delivered {
		return false
	}
	want, ready := enough(f.receive, m.arrived(f))
	if !ready && want > 0 && f.wire.count > 0 {
		if b := m.o.Burst; b > 1 {
			v, _ := f.receive.Head()
			want = min((want+b-1)/b*b, v.Length)
		}
		if pulse := f.wire.front(); want-f.wire.landed <= pulse.bytes {
			m.Set(f.events[hostRcvReady], pulse.reaches(want-f.wire.landed))
		}
	}
	return ready
}

// enough reports whether as much of a frame has arrived as a device waits for, and returns how much that is; 0 if no
// progress counter will tell.
func enough(d *pipeline.Device, arrived int) (want int, ready bool) {
	want, ok := d.Threshold(arrived)
	if !ok {
		return 0, false
	}
	switch view, _ := d.Head(); {
	case view.Arrived == view.Length:
		arrived = view.Arrived
	case needsEnd(d, view, want):
		return 0, false
	}
	return want, arrived >= want
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

// decide ends the processor's job and starts what it decided.
func (m *machine) decide(c *nic) {
	j := c.job
	c.job = noJob
	switch j {
	case startHostTx:
		m.startHostTx(c.out)
	case startHostRcv:
		m.startHostRcv(c.in)
	case startNetTx:
		m.startNetTx(c.out)
	case armNetRcv:
		m.arm(c.in)
	case workHeader:
		c.in.headers++
	}
}

func (m *machine) startHostTx(f *flow) {
	bytes := f.length(f.started)
	if _, err := f.send.Start(bytes); err != nil {
		f.from.reading = false
		return
	}
	m.applyChanges(f, f.started)
	m.notes(f.from, m.o.Profile.NIC.LogSend)
	f.started++
	cost := m.overBus(f.cost[dmalog.HostTx])
	f.hostTx = move{active: true, decided: f.from.began, issued: m.Now, from: m.Now + cost.Overhead,
		end: m.Now + cost.Transfer(bytes), perByte: cost.PerByte, bytes: bytes, burst: m.o.Burst,
		queued: f.postedFrames - f.started}
	m.Set(f.events[hostTxEnd], f.hostTx.end)
	m.share(f.from)
}

func (m *machine) startNetTx(f *flow) {
	m.progress(f.send, f.hostTx.progress(m.Now))
	f.send.SetBacklog(f.postedFrames - f.started)
	t, ok := f.send.Next()
	if !ok {
		return
	}
	cost := f.cost[dmalog.NetTx]
	view, _ := f.send.Head()
	f.netTx = move{active: true, decided: f.from.began, issued: m.Now, perByte: cost.PerByte, bytes: t.Bytes, from: m.Now + cost.Overhead, view: view}
	f.leaving, f.pulse = int(t.Frame), t
	if m.trunk != nil {
		m.enter(f)
	} else {
		m.depart(f)
	}
}

// depart lets a netTx pulse go that has a path.
func (m *machine) depart(f *flow) {
	if f.pulse.Offset == 0 && f.armed <= f.leaving {
		f.stalled = true // back-pressure: the receiver has no buffer armed
		return
	}
	m.flow(f, f.pulse.Offset == 0)
}

// flow lets the bytes of a netTx pulse go, the control message ahead if the pulse
// is a frame's first.
func (m *machine) flow(f *flow, first bool) {
	p := &f.netTx
	cost := profile.Cost{PerByte: p.perByte}
	begin := p.from
	if first {
		p.first = true
		p.from += cost.Bytes(m.o.Profile.Link.Header)
	}
	if m.trunk != nil {
		if !first && m.starts(f) {
			p.from += cost.Bytes(fragmentHeader)
		}
		m.passes(f, begin)
	}
	p.began, p.flowing = p.from, true
	p.end = p.from + cost.Bytes(p.bytes)
	m.Set(f.events[netTxEnd], max(p.end, m.Now))
	arrival := *p
	arrival.from += m.o.Profile.Link.Latency
	arrival.end += m.o.Profile.Link.Latency
	if first {
		f.receiveBegan = begin + m.o.Profile.Link.Latency
		f.receiveFrom = arrival.from
		m.Set(f.events[headerIn], arrival.from)
	}
	f.wire.push(arrival)
	if f.wire.count == 1 {
		m.Set(f.events[pulseIn], arrival.end)
	}
	m.share(f.from)
	m.share(f.to)
	m.look(f.to)
}

// arm gives the receive engine a buffer for the next frame of a flow.
func (m *machine) arm(f *flow) {
	if _, err := f.receive.Start(f.length(f.armed)); err != nil {
		return
	}
	f.wire.landed = 0
	f.receiving = true
	f.armed++
	if f.stalled && f.armed > f.leaving {
		f.stalled = false
		// The first bytes arrived before the receiver had armed a buffer.
		f.netTx.from = max(f.netTx.from, m.Now-m.o.Profile.Link.Latency)
		m.flow(f, true)
	}
}

func (m *machine) startHostRcv(f *flow) {
	m.progress(f.receive, m.arrived(f))
	t, ok := f.receive.Next()
	if !ok {
		f.to.writing = false
		return
	}
	cost := m.overBus(f.cost[dmalog.HostRcv])
	f.hostRcv = move{active: true, decided: f.to.began, issued: m.Now, from: m.Now + cost.Overhead,
		end: m.Now + cost.Transfer(t.Bytes), perByte: cost.PerByte, bytes: t.Bytes}
	m.Set(f.events[hostRcvEnd], f.hostRcv.end)
	m.share(f.to)
}

// progress hands a progress counter to a device whose frame is still arriving.
func (m *machine) progress(d *pipeline.Device, total int) {
	if d.Filling() {
		m.note(d.Arrived(total))
	}
}

// maxPerByte keeps the time of the longest frame in range, in femtoseconds.
const maxPerByte = math.MaxInt64 / pipeline.MaxFrame / 2

func (m *machine) applyChanges(f *flow, frame int) {
	for _, c := range m.o.Changes {
		if c.Frame == frame {
			cost := &f.cost[c.Engine]
			cost.Overhead = profile.Time(float64(cost.Overhead) * c.Overhead)
			cost.PerByte = min(max(int64(float64(cost.PerByte)/c.Bandwidth), 1), maxPerByte)
		}
	}
}

// schedule makes the events: those of each flow, after which the NICs concerned look for work; one of each NIC, whose
// processor has made its decision; and one of a trunk's watchdog.
func (m *machine) schedule() {
	for i := range m.flows {
		f := &m.flows[i]
		from, to := func() { m.look(f.from) }, func() { m.look(f.to) }
		for kind, happens := range [kinds][]func(){
			posted:    {func() { f.postedFrames++ }, func() { m.post(f) }, from},
			breakIn:   {func() { m.breakOff(f) }, to},
			hostTxEnd: {func() { m.endHostTx(f) }, from},
			netTxEnd:  {func() { m.endNetTx(f) }, from},
			headerIn:  {func() { m.headerCame(f) }, to},
			// The wire may have been full.
			pulseIn:      {func() { m.endPulse(f) }, to, from},
			hostRcvEnd:   {func() { m.endHostRcv(f) }, to},
			hostTxNoted:  {func() { f.from.reading = false }, func() { m.progress(f.send, f.length(f.started-1)) }, from},
			netRcvNoted:  {func() { f.receiving = false }, func() { m.progress(f.receive, f.length(f.armed-1)) }, to},
			netTxReady:   {from},
			hostRcvReady: {to},
		} {
			f.events[kind] = events.NewEvent(i*kinds+kind, happens...)
		}
	}
	for n := range m.nics {
		c := &m.nics[n]
		c.decided = events.NewEvent(len(m.flows)*kinds+n, func() { m.decide(c) }, func() { m.look(c) })
	}
	m.watch = events.NewEvent(len(m.flows)*kinds+len(m.nics), m.watchdog)
}

func (m *machine) headerCame(f *flow) {
	m.ahead(f, dmalog.NetRcv, f.headersCame, f.receiveBegan, m.Now)
	m.notes(f.to, m.o.Profile.NIC.LogReceive)
	f.headersCame++
}

func (m *machine) endHostTx(f *flow) {
	f.hostTx.active = false
	m.Set(f.events[hostTxNoted], m.Now+m.o.Profile.NIC.Completion)
	m.share(f.from)
	if o, ok := f.send.Policy().(pipeline.Observer); ok {
		o.ObserveArrival(f.hostTx.bytes, int64(f.hostTx.end-f.hostTx.from))
	}
	frame := f.started - 1
	f.fetchedAt[frame%len(f.fetchedAt)] = m.Now
	if frame >= m.o.Warmup {
		f.from.busy += f.hostTx.end - f.hostTx.issued
	}
	m.record(f, dmalog.HostTx, frame, f.hostTx.issued, f.hostTx.end, f.hostTx.bytes)
}

func (m *machine) endNetTx(f *flow) {
	p := &f.netTx
	p.active = false
	p.flowing = false
	m.share(f.from)
	m.share(f.to)
	m.observe(f.send, p.view, p, f.fetchedAt[f.leaving%len(f.fetchedAt)])
	m.note(f.send.Done())
	began := p.issued
	if p.first {
		began = p.began
		m.ahead(f, dmalog.NetTx, f.leaving, p.issued, began)
	}
	m.notes(f.from, m.o.Profile.NIC.LogSend)
	m.record(f, dmalog.NetTx, f.leaving, began, m.Now, p.bytes)
	if m.trunk != nil {
		m.passed(f)
	}
}

// endPulse takes a pulse off the wire at the receiver. The last one of a frame
// ends netRcv, which is issued for the whole payload.
func (m *machine) endPulse(f *flow) {
	w := &f.wire
	end := w.front().end
	w.landed += w.front().bytes
	w.first = (w.first + 1) % inFlight
	w.count--
	if w.count > 0 {
		m.Set(f.events[pulseIn], w.front().end)
	}
	if w.landed == f.length(f.armed-1) {
		m.notes(f.to, m.o.Profile.NIC.LogReceive)
		m.Set(f.events[netRcvNoted], m.Now+m.o.Profile.NIC.Completion)
		if o, ok := f.receive.Policy().(pipeline.Observer); ok {
			o.ObserveArrival(w.landed, int64(end-f.receiveFrom))
		}
		f.landedAt[(f.armed-1)%len(f.landedAt)] = m.Now
		m.record(f, dmalog.NetRcv, f.armed-1, f.receiveFrom, end, w.landed)
	}
}

func (m *machine) endHostRcv(f *flow) {
	p := &f.hostRcv
	p.active = false
	f.to.writing = false
	m.share(f.to)
	m.progress(f.receive, m.arrived(f))
	view, _ := f.receive.Head()
	m.observe(f.receive, view, p, f.landedAt[f.delivered%len(f.landedAt)])
	if f.delivered >= m.o.Warmup {
		f.to.busy += p.end - p.issued
	}
	m.record(f, dmalog.HostRcv, f.delivered, p.issued, p.end, p.bytes)
	m.note(f.receive.Done())
	if view.Sent == view.Length {
		m.deliver(f)
	}
}

// observe tells a policy that learns what its transfer cost, and how its frame
// ended if it has. arrived is when the frame's last byte had arrived.
func (m *machine) observe(d *pipeline.Device, view pipeline.View, p *move, arrived profile.Time) {
	costs, learns := d.Policy().(pipeline.Observer)
	if !learns {
		return
	}
	costs.Observe(pipeline.Observation{Bytes: p.bytes, Elapsed: int64(m.Now - p.decided), Decision: int64(p.issued - p.decided),
		Left: view.Length - view.Sent, Queued: view.Queued})
	if ends, ok := d.Policy().(pipeline.FrameObserver); ok && view.Sent == view.Length {
		ends.ObserveFrame(view.Length, int64(m.Now-arrived))
	}
}
