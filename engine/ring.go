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

// ring is what rings do in their own way, whatever the reliability.
type ring struct{ nic *core }

// These are the kinds of rings.
type (
	unreliableRing struct {
		unreliableVI
		ring
	}
	reliableRing struct {
		reliableVI
		ring
	}
	losslessRing struct {
		losslessVI
		ring
	}
)

// open implements kind.
func (k reliableRing) open(ep *endpoint, peer *datasheet.ConnectBody) {
	k.reliableVI.open(ep, peer)
	if ep.kind = k; ep.rel.wire != 0 {
		ep.kind = losslessRing{losslessVI{k.reliableVI}, k.ring}
	}
}

// open implements kind: the next connection may be over another wire.
func (k losslessRing) open(ep *endpoint, peer *datasheet.ConnectBody) {
	reliableRing{k.reliableVI, k.ring}.open(ep, peer)
}

// check implements kind.
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

// create implements kind: it takes device memory for the rings and the payload table, in
// pages that nothing else is in.
func (k ring) create(ep *endpoint) (reply datasheet.EndpointCreated, why refusal) {
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
	ep.ring, ep.shortest, ep.bells, ep.plain = r, datasheet.RingMessage, bellRing, false
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

// destroy implements kind.
func (k ring) destroy(ep *endpoint) {
	k.nic.regions.deregister(ep.ring.handle)
	k.nic.regions.sram.release(ep.ring.span)
}

// fetch implements kind. The slot's descriptor is copied once; what is wrong with it, or with
// what is attached, shows in l.status.
func (k ring) fetch(ep *endpoint, q *workQueue, l *layout) {
	m, slot := &k.nic.regions, ep.ring.slot(q, q.fetched)
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
func (l *layout) attached() segment { return l.segments[:2][1] }

// destination implements kind: the message goes to its slot and the payload to what is
// attached there, or where the payload table says. If neither has room for it the payload is
// discarded whole.
func (k ring) destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status {
	in.tabled, in.place, in.discards = false, 0, false
	if st != 0 || h.Extent == datasheet.RingMessage {
		return st
	}
	to := in.attached()
	if h.Flags&datasheet.FrameImmediate != 0 {
		var named datasheet.RingPlace
		if n := h.Immediate % datasheet.PayloadEntries; ep.ring.table[n].Load(&named) && named.Tag == h.Immediate {
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
func (ep *endpoint) setPlace(b *datasheet.SetPayloadBody) {
	ep.ring.table[b.Entry].Store(&datasheet.RingPlace{Address: b.Address, Handle: b.Handle, Length: b.Length, Tag: b.Tag})
	end := func(in *receipt) {
		if in.place == b.Entry+1 {
			in.withdraw()
		}
	}
	if r := ep.rel; r != nil {
		for i := range r.receipts {
			end(&r.receipts[i])
		}
	}
	if u := ep.unrel; u != nil {
		end(&u.in)
	}
}

// complete implements kind: of a receive the slot also says what has become of the payload.
func (k ring) complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status) {
	sent := max(length, datasheet.RingMessage) - datasheet.RingMessage
	there := sent
	if q.receive {
		slot := ep.ring.slot(q, q.completed)
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
