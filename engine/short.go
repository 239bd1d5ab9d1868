package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// Short frames (SPEC.md 8.12): a message of one frame whose header is one word.

// form is how the lane sends a message.
type form int

const (
	formWhole form = iota // with a header in front of it
	formShort
	formLent // a short frame that says where it is
)

// tells reports whether a short frame can tell what the connection has to: Ack and Credit may be ahead
// of those in its last frame by less than 2^16.
func (r *reliable) tells(credit uint32) bool {
	return r.shorts && credit-r.offered < 1<<16 && r.expect-r.told < 1<<16
}

// laneRoom returns where a message goes that the lane is to send, with its header or without, and how. It
// is nil if the wire takes no more now, or if the lane cannot send it.
func (t *transmitter) laneRoom(ep *endpoint, payload []byte, credit uint32, bits descriptors.Control) ([]byte, form) {
	n := len(payload)
	short := bits&descriptors.ControlImmediate == 0 && ep.rel.tells(credit)
	if n >= lendFrom && short && t.lends(ep) {
		if id, at, ok := t.lender.Lend(payload); ok {
			t.references[0] = descriptors.Reference{Region: id, Length: uint32(n), Offset: at}
			return t.slots.ReserveShort(descriptors.ReferenceSize), formLent
		}
	}
	if n > int(t.oneBurst) {
		return nil, formWhole
	}
	if short {
		if to := t.slots.ReserveShort(n); to != nil {
			return to, formShort
		}
	}
	if n >= lendFrom {
		return nil, formWhole
	}
	return t.reserve(descriptors.HeaderSize + n), formWhole
}

// laneSend sends m, which is payload, in the room that laneRoom has returned.
func (t *transmitter) laneSend(ep *endpoint, m *sending, to, payload []byte, how form, credit uint32) {
	r, n := ep.rel, len(payload)
	if how == formWhole {
		head(to, ep, m, r.nxt, 0, uint32(n), 0)
		copy(to[descriptors.HeaderSize:], payload)
		t.handOver(n)
		return
	}
	h := descriptors.ShortHeader{Endpoint: uint16(ep.remote.endpoint), PSN: uint16(r.nxt), Ack: uint16(r.expect),
		Credit: uint16(credit), Tag: uint16(ep.remote.theirKey)}
	if how == formShort {
		copy(to, payload)
		t.slots.CommitShort(h, false)
	} else {
		copy(descriptors.ReferencesAt(to), t.references[:1])
		t.slots.CommitShort(h, true)
		t.lender.Lent(ep.id)
		r.lent = r.nxt + 1
	}
	t.handed(n)
}

// short takes a short frame.
func (r *receiver) short(payload []byte, h descriptors.ShortHeader, lent bool) {
	if !r.shortLane(payload, h, lent) {
		r.takeFrame(r.lengthen(payload, h, lent))
	}
}

// shortLane does for a short frame what lane does for others.
func (r *receiver) shortLane(payload []byte, h descriptors.ShortHeader, lent bool) bool {
	ep := r.endpoint(uint32(h.Endpoint))
	if ep == nil || ep.rel == nil || !ep.rel.shorts || ep.state != descriptors.StateConnected || r.hooks&arriveWhole != 0 {
		return false
	}
	rel, n := ep.rel, uint32(len(payload))
	ack, credit := ahead(rel.heardAck, h.Ack), ahead(rel.heardCredit, h.Credit)
	if h.Tag != uint16(ep.remote.ourKey) || h.PSN != uint16(rel.expect) || int32(ack-rel.nxt) > 0 {
		return false
	}
	var at descriptors.Reference
	if lent {
		if n != descriptors.ReferenceSize || r.lender == nil {
			return false
		}
		at = descriptors.ReferencesAt(payload)[0] // read once: the peer may be able to write it
		n = at.Length
	}
	in := r.await(ep, n)
	if in == nil || n == 0 {
		return false
	}
	from := payload
	if lent {
		if from = r.lender.Borrow(at.Region, at.Offset, uint64(n)); len(from) != int(n) {
			return false
		}
	}
	if !r.dma.movers[Receive].Whole(int(n), 0) {
		return false
	}
	in.fill(from)
	if lent && !r.lender.Return() {
		// Its sender has taken the memory back meanwhile.
		frame := r.lengthen(payload, h, lent)
		r.header, r.unanswered = *descriptors.HeaderAt(frame), false
		r.refuse()
		r.release(frame)
		return true
	}
	r.arrived(ep, in, n, ack, credit, 0, 0)
	return true
}

// ahead is the number at or behind known, by less than 2^16, of which bits 15:0 are low.
func ahead(known uint32, low uint16) uint32 { return known + uint32(low-uint16(known)) }

// lengthen makes a whole frame of a short one, in memory of the engine.
func (r *receiver) lengthen(payload []byte, s descriptors.ShortHeader, lent bool) []byte {
	frame := r.ownFrame()[:descriptors.HeaderSize+len(payload)]
	copy(frame[descriptors.HeaderSize:], payload)
	length := uint32(len(payload))
	flags := descriptors.FrameFirst | descriptors.FrameLast
	if lent {
		flags |= descriptors.FrameReference
		length = 0
		for _, at := range descriptors.ReferencesAt(frame[descriptors.HeaderSize:]) {
			length += min(at.Length, descriptors.MaxMTU) // too much is refused
		}
	}
	h := r.wholeHeader(s)
	h.Flags, h.Length, h.Extent = flags, uint16(length), length
	*descriptors.HeaderAt(frame) = h
	return frame
}

// wholeHeader is what a short header stands for, but for length and flags. If nobody remembers a connection
// with its tag, Source is zero, and Key the tag.
func (r *receiver) wholeHeader(s descriptors.ShortHeader) descriptors.Header {
	h := descriptors.Header{Destination: r.mac, EtherType: descriptors.EtherType, Version: descriptors.WireVersion,
		Type: descriptors.FrameData, DestinationEndpoint: uint32(s.Endpoint), Key: uint32(s.Tag), PSN: uint32(s.PSN)}
	ep := r.endpoint(h.DestinationEndpoint)
	if ep != nil && ep.remote.is(s.Tag) {
		h.PSN, h.Ack, h.Credit = ahead(ep.remote.theirKey, s.PSN), ahead(ep.remote.ourKey, s.Ack), uint32(s.Credit)
		if rel := ep.rel; rel != nil {
			h.PSN, h.Ack, h.Credit, h.Message = ahead(rel.expect, s.PSN), ahead(rel.heardAck, s.Ack), ahead(rel.heardCredit, s.Credit), rel.done
		}
		h.Source, h.SourceEndpoint, h.Key = ep.remote.mac, ep.remote.endpoint, ep.remote.ourKey
	} else if p := r.conns.lastWith(ep, s); p != nil {
		h.Source, h.SourceEndpoint, h.Key = p.mac, p.endpoint, p.ourKey
	}
	return h
}

// is reports whether frames with a tag are of the connection, if there is one.
func (p *remote) is(tag uint16) bool {
	return p.ourKey != 0 && p.endpoint != 0 && uint16(p.ourKey) == tag
}

// lastWith does for a short frame what lastOf does for others.
func (c *connections) lastWith(ep *endpoint, s descriptors.ShortHeader) *ended {
	if ep != nil && ep.ended.is(s.Tag) {
		return &ep.ended
	}
	for i := range c.departed {
		if p := &c.departed[i]; p.id == uint32(s.Endpoint) && p.is(s.Tag) {
			return p
		}
	}
	return nil
}

// onShortEcho handles the news that the other side knows nothing of a connection on which this one has
// sent a short frame.
func (e *Engine) onShortEcho(h *descriptors.Header) verdict {
	for _, ep := range e.living {
		if to := &ep.remote; ep.rel != nil && ep.rel.shorts && to.endpoint == h.SourceEndpoint && to.mac == h.Source && uint32(uint16(to.theirKey)) == h.Key {
			e.conns.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, false)
			return taken
		}
	}
	return refused
}
