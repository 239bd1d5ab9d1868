// Package ring is the kind of Trapeze rings (SPEC.md 15).
package ring

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/vi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// A Trapeze ring is an endpoint whose queues are in device memory and hold the messages
// themselves (SPEC.md 15). Each slot is a descriptor of two segments: the message in the slot,
// and the payload attached to it. So all that lies between fetching one and completing it is
// as with a VI.

// ringMemory is the device memory of a ring. The host may write to it at any time.
type ringMemory struct {
	core.Span
	handle     uint32
	send, recv []datasheet.RingSlot
	table      []datasheet.RingPlace
}

// ring is the format of rings, whatever the reliability.
type ring struct{ nic *core.Core }

// Register registers rings, whose messages k carries.
func Register(k *vi.Transport) {
	f := ring{k.Core}
	k.Kinds[datasheet.KindRing] = &core.Kind{Connects: true, Queues: true, SRAM: true,
		Check: f.check, Create: f.create, Destroy: f.destroy, Deliver: k.Deliver, Format: f,
		SetPayload: func(ep *core.Endpoint, b *datasheet.SetPayloadBody) { setPlace(k, ep, b) }}
}

// check names what is wrong with a new ring, besides what is with any endpoint.
func (ring) check(b *datasheet.CreateEndpointBody) core.Refusal {
	return core.FirstOf([]core.Check{
		{b.Options != 0, datasheet.ResultInvalidParameter, core.FieldOptions},
		{b.MaxTransfer < datasheet.RingMessage, datasheet.ResultInvalidMTU, core.Field(b, &b.MaxTransfer)},
		{b.SendIOVA != 0, datasheet.ResultInvalidParameter, core.Field(b, &b.SendIOVA)},
		{b.RecvIOVA != 0, datasheet.ResultInvalidParameter, core.Field(b, &b.RecvIOVA)},
	})
}

// create takes device memory for the rings and the payload table, in
// pages that nothing else is in.
func (k ring) create(ep *core.Endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why core.Refusal) {
	m := &k.nic.Regions
	sends, recvs := uint64(ep.Send.Mask)+1, uint64(ep.Recv.Mask)+1
	recv := sends * datasheet.RingSlotSize
	table := recv + recvs*datasheet.RingSlotSize
	size := table + datasheet.PayloadEntries*datasheet.RingPlaceSize
	size = (size + datasheet.PageSize - 1) &^ (datasheet.PageSize - 1)
	p, ok := m.SRAM.Alloc(size, datasheet.PageSize)
	if !ok {
		return reply, core.Refusal{Result: datasheet.ResultResource, Field: 0}
	}
	memory := m.SRAM.Memory(p)
	r := &ringMemory{Span: p, send: datasheet.RingSlotsAt(memory[:recv]), recv: datasheet.RingSlotsAt(memory[recv:table]),
		table: datasheet.RingPlacesAt(memory[table:][:datasheet.PayloadEntries*datasheet.RingPlaceSize])}
	if r.send == nil || r.recv == nil || r.table == nil {
		m.SRAM.Release(p) // BAR4 is not where slots can be
		return reply, core.Refusal{Result: datasheet.ResultNotSupported, Field: core.Field(b, &b.Kind)}
	}
	if r.handle, ok = m.RegisterDevice(p, ep.Ptag, 0); !ok {
		m.SRAM.Release(p)
		return reply, core.Refusal{Result: datasheet.ResultResource, Field: 0}
	}
	ep.Own, ep.Shortest, ep.Bells = r, datasheet.RingMessage, core.BellRing
	ep.Send.Tokens = slotTokens(p.At, r.handle, sends)
	ep.Recv.Tokens = slotTokens(p.At+recv, r.handle, recvs)
	return datasheet.EndpointCreated{Handle: r.handle, Send: uint32(p.At), Recv: uint32(p.At + recv), Table: uint32(p.At + table)}, core.Refusal{}
}

// slotTokens are tokens that name the descriptors in the n slots from offset at on.
func slotTokens(at uint64, handle uint32, n uint64) []datasheet.Token {
	tokens := make([]datasheet.Token, n)
	for i := range tokens {
		tokens[i] = datasheet.Token{Address: at + uint64(i)*datasheet.RingSlotSize + datasheet.RingMessage, Handle: handle}
	}
	return tokens
}

func (k ring) destroy(ep *core.Endpoint) {
	r := ep.Own.(*ringMemory)
	k.nic.Regions.Deregister(r.handle)
	k.nic.Regions.SRAM.Release(r.Span)
}

// Fetch implements core.Format. The slot's descriptor is copied once; what is wrong with it, or with
// what is attached, shows in l.status.
func (k ring) Fetch(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) (usual bool) {
	m, memory := &k.nic.Regions, ep.Own.(*ringMemory)
	slots := memory.send
	if q.Receive {
		slots = memory.recv
	}
	slot := &slots[q.Fetched&q.Mask]
	l.Token = q.Tokens[q.Fetched&q.Mask]
	q.Fetched++
	bits, segments, reserved, tag, length := slot.Control, slot.Segments, slot.Reserved, slot.Tag, slot.Length
	payload := core.Segment{Address: slot.Payload.Address, Handle: slot.Payload.Handle, Length: slot.Payload.Length}
	// The message is where it always is; what is attached stands behind it.
	message := core.Segment{Address: l.Token.Address - datasheet.RingMessage, Handle: l.Token.Handle, Length: datasheet.RingMessage}
	if segments == 0 {
		payload = core.Segment{}
	}
	l.Segments = append(l.Segments[:0], message, payload)[:1]
	l.Total, l.At, l.Base, l.Place, l.Discards = datasheet.RingMessage, 0, 0, 0, false
	l.Control, l.Pieces = core.Control{Bits: bits & datasheet.ControlImmediate, Immediate: tag}, [2][]byte{}
	l.Descriptor, l.Memory, l.Stamp = slot.Descriptor(), slot.Message[:], m.Stamp
	switch l.Status = 0; {
	case segments > 1, bits&^datasheet.ControlImmediate != 0, reserved != 0:
		l.Status = datasheet.StatusFormatError
	case q.Receive:
		if segments == 0 {
			break
		}
		if r, _ := m.Reach(payload.Handle, ep.Ptag, payload.Address, uint64(payload.Length), true); r == nil {
			m.Count(datasheet.CounterProtectionErrors, 1)
			l.Status = datasheet.StatusProtectionError
		}
	case length > payload.Length, uint64(length)+datasheet.RingMessage > uint64(ep.MaxTransfer):
		l.Status = datasheet.StatusLengthError
	case length > 0:
		l.Segments = l.Segments[:2]
		l.Segments[1].Length = length
		l.Total += length
		k.layPieces(ep, q, l, slot.Message[:])
	}
	return false
}

// Destination implements core.Format: the message goes to its slot and the payload to what is
// attached there, or where the payload table says. If neither has room for it the payload is
// discarded whole.
func (k ring) Destination(ep *core.Endpoint, in *core.Receipt, st datasheet.Status, extent, tag uint32, tagged bool) datasheet.Status {
	in.Tabled, in.Place, in.Discards = false, 0, false
	if st != 0 || extent == datasheet.RingMessage {
		return st
	}
	to := in.Segments[:2][1] // what is attached to the receive
	if tagged {
		var named datasheet.RingPlace
		if n := tag % datasheet.PayloadEntries; ep.Own.(*ringMemory).table[n].Load(&named) && named.Tag == tag {
			to, in.Place = core.Segment{Address: named.Address, Handle: named.Handle, Length: named.Length}, n+1
		}
	}
	payload := extent - datasheet.RingMessage
	if to.Handle == 0 || payload > to.Length {
		in.Discard()
		return 0
	}
	to.Length = payload
	l := &in.Entry
	l.Segments = append(l.Segments[:0], in.Segments[0], to)
	l.Total, l.At, l.Base, l.Peer, in.Tabled = extent, 0, 0, false, true
	k.layPieces(ep, &ep.Recv, l, in.Memory)
	if l.Status != 0 && in.Withdraw() {
		return 0
	}
	return l.Status
}

// layPieces finds the memory of the payload of l, whose message stands in the slot. What is wrong with it shows in
// l.Status.
func (k ring) layPieces(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout, message []byte) {
	m, s := &k.nic.Regions, &l.Segments[1]
	payload := m.Near(&q.Payload, s.Handle, ep.Ptag, s.Address, uint64(s.Length), q.Receive)
	if payload == nil || message == nil {
		l.Status = m.Check(l, ep.Ptag, q.Receive)
		return
	}
	l.Status, l.Memory, l.Pushed, l.Eager, l.Stamp, l.Pieces = 0, nil, nil, 0, m.Stamp, [2][]byte{message, payload}
}

// setPlace writes an entry of the payload table of a ring. What is still to come of payloads
// that go where the entry said before is discarded: that memory is the host's again.
func setPlace(k *vi.Transport, ep *core.Endpoint, b *datasheet.SetPayloadBody) {
	ep.Own.(*ringMemory).table[b.Entry].Store(&datasheet.RingPlace{Address: b.Address, Handle: b.Handle, Length: b.Length, Tag: b.Tag})
	k.Receipts(ep, func(in *core.Receipt) {
		if in.Place == b.Entry+1 {
			in.Withdraw()
		}
	})
}

// Complete implements core.Format: of a receive the slot also says what has become of the payload.
func (k ring) Complete(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout, length, immediate uint32, st datasheet.Status) {
	sent := max(length, datasheet.RingMessage) - datasheet.RingMessage
	there := sent
	if q.Receive {
		slot := &ep.Own.(*ringMemory).recv[q.Completed&q.Mask]
		slot.Sent, slot.Place = sent, 0
		switch {
		case sent == 0:
		case l.Discards:
			there = 0
			k.nic.Count(datasheet.CounterPayloadsDiscarded, 1)
		default:
			slot.Place = l.Place
		}
	}
	k.nic.CQs.Complete(ep, q, l, there, immediate, st)
}
