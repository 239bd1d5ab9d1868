package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// A Trapeze ring is an endpoint whose queues are in device memory and hold the messages
// themselves (SPEC.md 15). Each slot is a descriptor of two segments: the message in the slot,
// and the payload attached to it. So all that lies between fetching one and completing it is
// as with a VI.

// ringMemory is the device memory of a ring. The host may write to it at any time.
type ringMemory struct {
	span
	handle     uint32
	send, recv []datasheet.RingSlot
	table      []datasheet.RingPlace
}

// ring is the format of rings, whatever the reliability.
type ring struct{ nic *core }

// newRings registers rings, whose messages k carries.
func newRings(k *transport) {
	f := ring{k.core}
	own := k.with(f)
	k.kinds[datasheet.KindRing] = &kind{connects: true, queues: true, sram: true,
		check: f.check, create: f.create, destroy: f.destroy, deliver: own.deliver,
		setPayload: func(ep *endpoint, b *datasheet.SetPayloadBody) { setPlace(own, ep, b) }}
}

// memoryOf is the device memory of a ring.
func memoryOf(ep *endpoint) *ringMemory { return ep.own.(*ringMemory) }

// check names what is wrong with a new ring, besides what is with any endpoint.
func (ring) check(b *datasheet.CreateEndpointBody) refusal {
	switch {
	case b.Options != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	case b.MaxTransfer < datasheet.RingMessage:
		return refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
	case b.SendIOVA != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldSendIOVA}
	case b.RecvIOVA != 0:
		return refusal{datasheet.ResultInvalidParameter, fieldRecvIOVA}
	}
	return refusal{}
}

// create takes device memory for the rings and the payload table, in
// pages that nothing else is in.
func (k ring) create(ep *endpoint, _ *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why refusal) {
	m := &k.nic.regions
	sends, recvs := uint64(ep.send.mask)+1, uint64(ep.recv.mask)+1
	recv := sends * datasheet.RingSlotSize
	table := recv + recvs*datasheet.RingSlotSize
	size := table + datasheet.PayloadEntries*datasheet.RingPlaceSize
	size = (size + datasheet.PageSize - 1) &^ (datasheet.PageSize - 1)
	p, ok := m.sram.alloc(size, datasheet.PageSize)
	if !ok {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	b := m.sram.memory(p)
	r := &ringMemory{span: p, send: datasheet.RingSlotsAt(b[:recv]), recv: datasheet.RingSlotsAt(b[recv:table]),
		table: datasheet.RingPlacesAt(b[table:][:datasheet.PayloadEntries*datasheet.RingPlaceSize])}
	if r.send == nil || r.recv == nil || r.table == nil {
		m.sram.release(p) // BAR4 is not where slots can be
		return reply, refusal{datasheet.ResultNotSupported, fieldKind}
	}
	if r.handle, ok = m.registerDevice(p, ep.ptag, 0); !ok {
		m.sram.release(p)
		return reply, refusal{datasheet.ResultResource, 0}
	}
	ep.own, ep.shortest, ep.bells = r, datasheet.RingMessage, bellRing
	ep.send.tokens = slotTokens(p.at, r.handle, sends)
	ep.recv.tokens = slotTokens(p.at+recv, r.handle, recvs)
	return datasheet.EndpointCreated{Handle: r.handle, Send: uint32(p.at), Recv: uint32(p.at + recv), Table: uint32(p.at + table)}, refusal{}
}

// slotTokens are tokens that name the descriptors in the n slots from offset at on.
func slotTokens(at uint64, handle uint32, n uint64) []datasheet.Token {
	tokens := make([]datasheet.Token, n)
	for i := range tokens {
		tokens[i] = datasheet.Token{Address: at + uint64(i)*datasheet.RingSlotSize + datasheet.RingMessage, Handle: handle}
	}
	return tokens
}

// destroy gives back what create took.
func (k ring) destroy(ep *endpoint) {
	r := memoryOf(ep)
	k.nic.regions.deregister(r.handle)
	k.nic.regions.sram.release(r.span)
}

// fetch implements format. The slot's descriptor is copied once; what is wrong with it, or with
// what is attached, shows in l.status.
func (k ring) fetch(ep *endpoint, q *workQueue, l *layout) {
	m, slot := &k.nic.regions, memoryOf(ep).slot(q, q.fetched)
	l.token = q.tokens[q.fetched&q.mask]
	q.fetched++
	bits, segments, reserved, tag, length := slot.Control, slot.Segments, slot.Reserved, slot.Tag, slot.Length
	payload := segment{slot.Payload.Address, slot.Payload.Handle, slot.Payload.Length}
	// The message is where it always is; what is attached stands behind it.
	message := segment{l.token.Address - datasheet.RingMessage, l.token.Handle, datasheet.RingMessage}
	if segments == 0 {
		payload = segment{}
	}
	l.segments = append(l.segments[:0], message, payload)[:1]
	l.total, l.at, l.base, l.place, l.discards = datasheet.RingMessage, 0, 0, 0, false
	l.control = control{bits & datasheet.ControlImmediate, tag}
	l.descriptor, l.memory, l.stamp = slot.Descriptor(), slot.Message[:], m.stamp
	switch l.status = 0; {
	case segments > 1, bits&^datasheet.ControlImmediate != 0, reserved != 0:
		l.status = datasheet.StatusFormatError
	case q.receive:
		if segments != 0 {
			l.status = m.permit(&payload, ep.ptag, true)
		}
	case length > payload.length, uint64(length)+datasheet.RingMessage > uint64(ep.maxTransfer):
		l.status = datasheet.StatusLengthError
	case length > 0:
		l.segments = l.segments[:2]
		l.segments[1].length = length
		l.total += length
		l.status = m.check(l, ep.ptag, false)
	}
}

// slot is that of number i of a queue.
func (r *ringMemory) slot(q *workQueue, i uint32) *datasheet.RingSlot {
	if q.receive {
		return &r.recv[i&q.mask]
	}
	return &r.send[i&q.mask]
}

// attached is the memory that is attached to a receive.
func attached(l *layout) segment { return l.segments[:2][1] }

// destination implements format: the message goes to its slot and the payload to what is
// attached there, or where the payload table says. If neither has room for it the payload is
// discarded whole.
func (k ring) destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status {
	in.tabled, in.place, in.discards = false, 0, false
	if st != 0 || h.Extent == datasheet.RingMessage {
		return st
	}
	to := attached(&in.layout)
	if h.Flags&datasheet.FrameImmediate != 0 {
		var named datasheet.RingPlace
		if n := h.Immediate % datasheet.PayloadEntries; memoryOf(ep).table[n].Load(&named) && named.Tag == h.Immediate {
			to, in.place = segment{named.Address, named.Handle, named.Length}, n+1
		}
	}
	payload := h.Extent - datasheet.RingMessage
	if to.handle == 0 || payload > to.length {
		in.discard()
		return 0
	}
	to.length = payload
	l := &in.entry
	l.segments = append(l.segments[:0], in.segments[0], to)
	l.total, l.at, l.base, l.memory, l.peer, in.tabled = h.Extent, 0, 0, nil, false, true
	if st = k.nic.regions.check(l, ep.ptag, true); st != 0 && in.withdraw() {
		return 0
	}
	return st
}

// setPlace writes an entry of the payload table of a ring. What is still to come of payloads
// that go where the entry said before is discarded: that memory is the host's again.
func setPlace(k *transport, ep *endpoint, b *datasheet.SetPayloadBody) {
	memoryOf(ep).table[b.Entry].Store(&datasheet.RingPlace{Address: b.Address, Handle: b.Handle, Length: b.Length, Tag: b.Tag})
	k.receipts(ep, func(in *receipt) {
		if in.place == b.Entry+1 {
			in.withdraw()
		}
	})
}

// complete implements format: of a receive the slot also says what has become of the payload.
func (k ring) complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status) {
	sent := max(length, datasheet.RingMessage) - datasheet.RingMessage
	there := sent
	if q.receive {
		slot := memoryOf(ep).slot(q, q.completed)
		slot.Sent, slot.Place = sent, 0
		switch {
		case sent == 0:
		case l.discards:
			there = 0
			k.nic.count(datasheet.CounterPayloadsDiscarded, 1)
		default:
			slot.Place = l.place
		}
	}
	k.nic.cqs.complete(ep, q, l, there, immediate, st)
}
