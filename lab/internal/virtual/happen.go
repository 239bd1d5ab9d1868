package virtual

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

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
	m.ahead(dmalog.Record{Packet: f.headersCame, Flow: f.number, Engine: dmalog.NetRcv, Start: int64(f.receiveBegan), End: int64(m.Now)})
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
	m.record(dmalog.Record{Packet: frame, Flow: f.number, Engine: dmalog.HostTx,
		Start: int64(f.hostTx.issued), End: int64(f.hostTx.end), Bytes: f.hostTx.bytes, Queued: f.hostTx.queued})
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
		m.ahead(dmalog.Record{Packet: f.leaving, Flow: f.number, Engine: dmalog.NetTx, Start: int64(p.issued), End: int64(began)})
	}
	m.notes(f.from, m.o.Profile.NIC.LogSend)
	m.record(dmalog.Record{Packet: f.leaving, Flow: f.number, Engine: dmalog.NetTx,
		Start: int64(began), End: int64(m.Now), Bytes: p.bytes})
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
		m.record(dmalog.Record{Packet: f.armed - 1, Flow: f.number, Engine: dmalog.NetRcv,
			Start: int64(f.receiveFrom), End: int64(end), Bytes: w.landed})
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
	m.record(dmalog.Record{Packet: f.delivered, Flow: f.number, Engine: dmalog.HostRcv,
		Start: int64(p.issued), End: int64(p.end), Bytes: p.bytes})
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
