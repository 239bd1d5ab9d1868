package virtual

import (
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// happen carries out one event of flow i and lets the NICs concerned look for
// work.
func (m *machine) happen(i, what int) {
	f := &m.flows[i]
	from, to := f.from, f.to
	switch what {
	case posted:
		f.postedFrames++
		m.post(i)
		m.look(from)
	case breakIn:
		m.breakOff(i)
		m.look(to)
	case hostTxEnd:
		m.endHostTx(i)
		m.look(from)
	case netTxEnd:
		m.endNetTx(i)
		m.look(from)
	case headerIn:
		if f.payload == 0 {
			m.controlArrived(i)
		} else {
			m.ahead(dmalog.Record{Packet: f.headersCame, Flow: i, Engine: dmalog.NetRcv, Start: int64(f.receiveBegan), End: int64(m.now)})
		}
		m.notes(to, m.o.Profile.NIC.LogReceive)
		f.headersCame++
		m.look(to)
	case pulseIn:
		m.endPulse(i)
		m.look(to)
		m.look(from) // the wire may have been full
	case hostRcvEnd:
		m.endHostRcv(i)
		m.look(to)
	case hostTxNoted:
		m.nics[from].reading = false
		m.progress(f.send, f.length(f.started-1))
		m.look(from)
	case netRcvNoted:
		f.receiving = false
		m.progress(f.receive, f.length(f.armed-1))
		m.look(to)
	case netTxReady:
		m.look(from)
	case hostRcvReady:
		m.look(to)
	}
}

func (m *machine) endHostTx(i int) {
	f := &m.flows[i]
	c := &m.nics[f.from]
	f.hostTx.active = false
	m.at[i*flowSlots+hostTxNoted] = m.now + m.o.Profile.NIC.Completion
	c.rate[dmalog.HostTx] = 0
	if o := f.sendLearns.costs; o != nil {
		o.ObserveArrival(f.hostTx.bytes, int64(f.hostTx.end-f.hostTx.from))
	}
	frame := f.started - 1
	f.fetchedAt[frame%len(f.fetchedAt)] = m.now
	if frame >= m.o.Warmup {
		c.busy += f.hostTx.end - f.hostTx.issued
	}
	m.record(dmalog.Record{Packet: frame, Flow: i, Engine: dmalog.HostTx,
		Start: int64(f.hostTx.issued), End: int64(f.hostTx.end), Bytes: f.hostTx.bytes, Queued: f.hostTx.queued})
}

func (m *machine) endNetTx(i int) {
	f := &m.flows[i]
	p := &f.netTx
	p.active = false
	m.nics[f.from].rate[dmalog.NetTx] = 0
	m.nics[f.to].rate[dmalog.NetRcv] = 0
	if f.payload == 0 {
		m.endControl(i)
		return
	}
	m.observe(f.sendLearns, p.view, p, f.fetchedAt[f.leaving%len(f.fetchedAt)])
	if !p.freed {
		m.finish(f.send)
	}
	began := p.issued
	if p.first && !m.o.Live { // a live NIC logs both as one
		began = p.from
		m.ahead(dmalog.Record{Packet: f.leaving, Flow: i, Engine: dmalog.NetTx, Start: int64(p.issued), End: int64(began)})
	}
	m.notes(f.from, m.o.Profile.NIC.LogSend)
	m.record(dmalog.Record{Packet: f.leaving, Flow: i, Engine: dmalog.NetTx,
		Start: int64(began), End: int64(m.now), Bytes: p.bytes})
	if m.trunk != nil {
		m.passed(i)
	}
}

// endPulse takes a pulse off the wire at the receiver. The last one of a frame
// ends netRcv, which is issued for the whole payload.
func (m *machine) endPulse(i int) {
	f := &m.flows[i]
	w := &f.wire
	end := w.front().end
	w.landed += w.front().bytes
	w.first = (w.first + 1) % inFlight
	w.count--
	if w.count > 0 {
		m.at[i*flowSlots+pulseIn] = w.front().end
	}
	if w.landed == f.length(f.armed-1) {
		m.notes(f.to, m.o.Profile.NIC.LogReceive)
		m.at[i*flowSlots+netRcvNoted] = m.now + m.o.Profile.NIC.Completion
		if o := f.receiveLearns.costs; o != nil {
			o.ObserveArrival(w.landed, int64(end-f.receiveFrom))
		}
		f.landedAt[(f.armed-1)%len(f.landedAt)] = m.now
		m.record(dmalog.Record{Packet: f.armed - 1, Flow: i, Engine: dmalog.NetRcv,
			Start: int64(f.receiveFrom), End: int64(end), Bytes: w.landed})
	}
}

func (m *machine) endHostRcv(i int) {
	f := &m.flows[i]
	c := &m.nics[f.to]
	p := &f.hostRcv
	p.active = false
	c.writing = false
	c.rate[dmalog.HostRcv] = 0
	m.progress(f.receive, m.arrived(i))
	view, _ := f.receive.Head()
	m.observe(f.receiveLearns, view, p, f.landedAt[f.delivered%len(f.landedAt)])
	if f.delivered >= m.o.Warmup {
		c.busy += p.end - p.issued
	}
	m.record(dmalog.Record{Packet: f.delivered, Flow: i, Engine: dmalog.HostRcv,
		Start: int64(p.issued), End: int64(p.end), Bytes: p.bytes})
	m.finish(f.receive)
	if view.Sent == view.Length {
		m.deliver(i)
	}
}

// learner is a policy that learns, by what it wants to know.
type learner struct {
	costs pipeline.Observer
	ends  pipeline.FrameObserver
}

func learnerOf(d *pipeline.Device) learner {
	var l learner
	l.costs, _ = d.Policy().(pipeline.Observer)
	l.ends, _ = d.Policy().(pipeline.FrameObserver)
	return l
}

// observe tells a policy that learns what its transfer cost, and how its frame
// ended if it has. arrived is when the frame's last byte had arrived.
func (m *machine) observe(l learner, view pipeline.View, p *move, arrived profile.Time) {
	if l.costs == nil {
		return
	}
	l.costs.Observe(pipeline.Observation{Bytes: p.bytes, Elapsed: int64(m.now - p.decided), Decision: int64(p.issued - p.decided),
		Left: view.Length - view.Sent, Queued: view.Queued})
	if l.ends != nil && view.Sent == view.Length {
		l.ends.ObserveFrame(view.Length, int64(m.now-arrived))
	}
}

func (m *machine) finish(d *pipeline.Device) {
	m.note(d.Done())
}
