package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// transport carries messages in data frames: those of VIs, and of other kinds whose queues and
// messages look otherwise.
type transport struct {
	*core
	wires  *ways
	format format // nil: descriptors of VIs
}

// format is what the queues and messages of another kind look like. VIs, where every message
// passes, are past this interface: four such calls cost a message 20 ns of 470
// (BenchmarkEcho/inline/64).
type format interface {
	// fetch takes the next message of a queue and copies what the host says of it into l.
	// What is wrong with that shows in l.status.
	fetch(ep *endpoint, q *workQueue, l *layout)
	// complete is that of delivery.
	complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status)
	// destination decides where a message goes of which h is the first frame that has come.
	// It returns st, the status of the receive, or what is wrong with that memory.
	destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status
}

// newTransport makes the transport of an engine, and registers the kinds that it has itself: VIs,
// receive queues that VIs share, and endpoints for raw frames.
func newTransport(c *core) *transport {
	k := &transport{core: c, wires: &ways{}}
	in := &lanes{&c.rx}
	c.rx.lane, c.rx.short, c.rx.raw = in.lane, in.short, in.takeRaw
	c.kinds[datasheet.KindVI] = &kind{connects: true, queues: true, tokens: true, rights: true,
		check: k.check, create: k.create, destroy: c.regions.forgetRings, deliver: k.deliver}
	c.kinds[datasheet.KindReceiveQueue] = receiveQueues(k)
	c.kinds[datasheet.KindFrame] = rawFrames(k)
	return k
}

// with is the transport of a kind with a format of its own.
func (k *transport) with(f format) *transport { return &transport{k.core, k.wires, f} }

// deliver is the delivery of an endpoint before it is connected.
func (k *transport) deliver(r datasheet.Reliability) delivery {
	if r == datasheet.Unreliable {
		return unreliableVI{k}
	}
	return reliableVI{k}
}

func (k *transport) create(ep *endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	if ep.options&datasheet.EndpointShares != 0 {
		ep.recv = sharing(k.all[b.RecvIOVA])
	}
	if ep.options&datasheet.EndpointEager != 0 {
		var ok bool
		if reply, ok = k.regions.pushRings(ep); !ok {
			return datasheet.EndpointCreated{}, refusal{datasheet.ResultResource, fieldOptions}
		}
	}
	return reply, why
}

func (k *transport) complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status) {
	if k.format == nil {
		k.cqs.complete(ep, q, l, length, immediate, st)
	} else {
		k.format.complete(ep, q, l, length, immediate, st)
	}
}

func (k *transport) check(b *datasheet.CreateEndpointBody) refusal {
	switch {
	case b.Options&^(datasheet.EndpointBreaks|datasheet.EndpointShares|datasheet.EndpointEager) != 0,
		b.Options&datasheet.EndpointBreaks != 0 && b.Reliability == datasheet.Unreliable:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	case b.Options&datasheet.EndpointEager != 0 && k.regions.sram.bytes == nil:
		return refusal{datasheet.ResultNotSupported, fieldOptions}
	}
	return refusal{}
}

// begin starts the message that the endpoint's next token names.
func (k *transport) begin(ep *endpoint, m *sending, number uint32) {
	m.number, m.cut, m.begun, m.allCut, m.lastPSN = number, 0, true, false, 0
	m.frames, m.awaits = datasheet.FrameData, 0
	if k.format == nil {
		descriptors{&k.regions}.fetch(ep, &ep.send, &m.layout)
	} else {
		k.format.fetch(ep, &ep.send, &m.layout)
	}
	if m.control.bits&unlikeSends != 0 && m.status == 0 {
		m.beginRDMA()
	}
}

// takeReceive fetches the next receive descriptor into in, unless none is
// posted. A bad one shows in in.status.
func (k *transport) takeReceive(ep *endpoint, in *receipt) bool {
	q := &ep.recv
	if q.posted() == 0 {
		// The host may have rung since this round looked: what it had posted
		// before the message was sent must be there for it.
		if k.bells.takePage(ep.id); q.posted() == 0 && !k.share(q) {
			return false
		}
	}
	if k.format == nil {
		descriptors{&k.regions}.fetch(ep, q, &in.layout)
	} else {
		k.format.fetch(ep, q, &in.layout)
	}
	return true
}

// destination is that of format. A message of a VI goes to the memory of its receive descriptor,
// or where an entry of the payload table says, which a program has chosen.
func (k *transport) destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status {
	if k.format != nil {
		return k.format.destination(ep, in, st, h)
	}
	room, entry := in.total, k.rx.entry
	if in.tabled = entry != nil; in.tabled {
		l := &in.entry
		l.segments = append(l.segments[:0], *entry)
		l.total, l.at, l.base, l.memory, l.peer = entry.length, 0, 0, nil, false
		room = l.total
	}
	switch {
	case st != 0:
		return st
	case h.Extent > room:
		return datasheet.StatusLengthError
	case in.tabled:
		return k.regions.check(&in.entry, ep.ptag, true)
	}
	return 0
}

// rel is the state of a reliable connection, nil if the endpoint has none.
func rel(ep *endpoint) *reliable {
	r, _ := ep.conn.(*reliable)
	return r
}

// unrel is the state of an endpoint whose messages are not acknowledged, nil if it has none.
func unrel(ep *endpoint) *unreliable {
	u, _ := ep.conn.(*unreliable)
	return u
}

// receipts calls do for each message of the endpoint that is on its way in.
func (k *transport) receipts(ep *endpoint, do func(in *receipt)) {
	if r := rel(ep); r != nil {
		for i := range r.receipts {
			do(&r.receipts[i])
		}
	}
	if u := unrel(ep); u != nil {
		do(&u.in)
	}
}
