package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Transport carries messages in data frames: those of VIs, and of other kinds whose queues and
// messages look otherwise.
type Transport struct {
	*core.Core
	wires  *ways
	format format // nil: descriptors of VIs
}

// format is what the queues and messages of another kind look like. VIs, where every message
// passes, are past this interface: four such calls cost a message 20 ns of 470
// (BenchmarkEcho/inline/64).
type format interface {
	// Fetch takes the next message of a queue and copies what the host says of it into l.
	// What is wrong with that shows in l.status.
	Fetch(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout)
	// Complete is that of delivery.
	Complete(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout, length, immediate uint32, st datasheet.Status)
	// Destination decides where a message goes of which h is the first frame that has come.
	// It returns st, the status of the receive, or what is wrong with that memory.
	Destination(ep *core.Endpoint, in *core.Receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status
}

// New makes the transport of an engine, and registers the kinds that it has itself: VIs,
// receive queues that VIs share, and endpoints for raw frames.
func New(c *core.Core) *Transport {
	k := &Transport{Core: c, wires: &ways{}}
	in := &lanes{&c.Rx}
	c.Rx.Lane, c.Rx.Short, c.Rx.Raw = in.lane, in.short, in.takeRaw
	c.Kinds[datasheet.KindVI] = &core.Kind{Connects: true, Queues: true, Tokens: true, Rights: true,
		Check: k.check, Create: k.create, Destroy: c.Regions.ForgetRings, Deliver: k.Deliver}
	c.Kinds[datasheet.KindReceiveQueue] = receiveQueues(k)
	c.Kinds[datasheet.KindFrame] = rawFrames(k)
	return k
}

// With is the transport of a kind with a format of its own.
func (k *Transport) With(f format) *Transport { return &Transport{k.Core, k.wires, f} }

// Deliver is the delivery of an endpoint before it is connected.
func (k *Transport) Deliver(r datasheet.Reliability) core.Delivery {
	if r == datasheet.Unreliable {
		return Unreliable{k}
	}
	return Reliable{k}
}

func (k *Transport) create(ep *core.Endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why core.Refusal) {
	if ep.Options&datasheet.EndpointShares != 0 {
		ep.Recv = sharing(k.All[b.RecvIOVA])
	}
	if ep.Options&datasheet.EndpointEager != 0 {
		var ok bool
		if reply, ok = k.Regions.PushRings(ep); !ok {
			return datasheet.EndpointCreated{}, core.Refusal{Result: datasheet.ResultResource, Field: core.FieldOptions}
		}
	}
	return reply, why
}

func (k *Transport) Complete(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout, length, immediate uint32, st datasheet.Status) {
	if k.format == nil {
		k.CQs.Complete(ep, q, l, length, immediate, st)
	} else {
		k.format.Complete(ep, q, l, length, immediate, st)
	}
}

func (k *Transport) check(b *datasheet.CreateEndpointBody) core.Refusal {
	switch {
	case b.Options&^(datasheet.EndpointBreaks|datasheet.EndpointShares|datasheet.EndpointEager) != 0,
		b.Options&datasheet.EndpointBreaks != 0 && b.Reliability == datasheet.Unreliable:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldOptions}
	case b.Options&datasheet.EndpointEager != 0 && k.Regions.SRAM.Bytes == nil:
		return core.Refusal{Result: datasheet.ResultNotSupported, Field: core.FieldOptions}
	}
	return core.Refusal{}
}

// begin starts the message that the endpoint's next token names.
func (k *Transport) begin(ep *core.Endpoint, m *core.Sending, number uint32) {
	m.Number, m.Cut, m.Begun, m.AllCut, m.LastPSN = number, 0, true, false, 0
	m.Frames, m.Awaits = datasheet.FrameData, 0
	if k.format == nil {
		descriptors{&k.Regions}.fetch(ep, &ep.Send, &m.Layout)
	} else {
		k.format.Fetch(ep, &ep.Send, &m.Layout)
	}
	if m.Control.Bits&core.UnlikeSends != 0 && m.Status == 0 {
		m.BeginRDMA()
	}
}

// takeReceive fetches the next receive descriptor into in, unless none is
// posted. A bad one shows in in.status.
func (k *Transport) takeReceive(ep *core.Endpoint, in *core.Receipt) bool {
	q := &ep.Recv
	if q.Posted() == 0 {
		// The host may have rung since this round looked: what it had posted
		// before the message was sent must be there for it.
		if k.Bells.TakePage(ep.ID); q.Posted() == 0 && !k.share(q) {
			return false
		}
	}
	if k.format == nil {
		descriptors{&k.Regions}.fetch(ep, q, &in.Layout)
	} else {
		k.format.Fetch(ep, q, &in.Layout)
	}
	return true
}

// destination is that of format. A message of a VI goes to the memory of its receive descriptor,
// or where an entry of the payload table says, which a program has chosen.
func (k *Transport) destination(ep *core.Endpoint, in *core.Receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status {
	if k.format != nil {
		return k.format.Destination(ep, in, st, h)
	}
	room, entry := in.Total, k.Rx.Entry
	if in.Tabled = entry != nil; in.Tabled {
		l := &in.Entry
		l.Segments = append(l.Segments[:0], *entry)
		l.Total, l.At, l.Base, l.Memory, l.Peer = entry.Length, 0, 0, nil, false
		room = l.Total
	}
	switch {
	case st != 0:
		return st
	case h.Extent > room:
		return datasheet.StatusLengthError
	case in.Tabled:
		return k.Regions.Check(&in.Entry, ep.Ptag, true)
	}
	return 0
}

// rel is the state of a reliable connection, nil if the endpoint has none.
func rel(ep *core.Endpoint) *reliable {
	r, _ := ep.Conn.(*reliable)
	return r
}

// unrel is the state of an endpoint whose messages are not acknowledged, nil if it has none.
func unrel(ep *core.Endpoint) *unreliable {
	u, _ := ep.Conn.(*unreliable)
	return u
}

// Receipts calls do for each message of the endpoint that is on its way in.
func (k *Transport) Receipts(ep *core.Endpoint, do func(in *core.Receipt)) {
	if r := rel(ep); r != nil {
		for i := range r.receipts {
			do(&r.receipts[i])
		}
	}
	if u := unrel(ep); u != nil {
		do(&u.in)
	}
}
