// Package vi has the kinds whose messages cross in data frames: VIs, receive queues that VIs
// share, and raw frames. Other kinds with such messages use its Transport.
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

// sharing is the receive side of a VI that shares the receives of from. It holds as many
// as messages can be in work.
func sharing(from *core.Endpoint) core.WorkQueue {
	return core.WorkQueue{Source: from, Named: true, Receive: true, CQ: from.Recv.CQ, Vector: datasheet.NoVector,
		Mask: core.WindowFrames - 1, Tokens: make([]datasheet.Token, core.WindowFrames)}
}

// share moves the next token of the queue that q shares to q. It returns false if there is
// none.
func (c *Transport) share(q *core.WorkQueue) bool {
	if q.Source == nil || q.Producer-q.Completed > q.Mask {
		return false
	}
	from := &q.Source.Recv
	if from.Posted() == 0 {
		// As in takeReceive.
		if c.Bells.TakePage(q.Source.ID); from.Posted() == 0 {
			return false
		}
	}
	t, st := c.Regions.Token(from, from.Fetched)
	if st != 0 {
		t = datasheet.Token{} // no region has handle 0: it ends with a protection error
	}
	from.Fetched++
	q.Tokens[q.Producer&q.Mask] = t
	q.Producer++
	return true
}
