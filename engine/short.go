package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// short takes a short frame.
func (r *lanes) short(payload []byte, h datasheet.ShortHeader, lent bool) {
	if !r.shortLane(payload, h, lent) {
		r.takeFrame(r.lengthen(payload, h, lent))
	}
}

// shortLane does for a short frame what lane does for others.
func (r *lanes) shortLane(payload []byte, h datasheet.ShortHeader, lent bool) bool {
	ep := r.endpoint(uint32(h.Endpoint))
	if ep == nil || ep.state != datasheet.StateConnected || r.hooks&arriveWhole != 0 {
		return false
	}
	rel, n := rel(ep), uint32(len(payload))
	if rel == nil || !rel.shorts {
		return false
	}
	ack, credit := ahead(rel.heardAck, h.Ack), ahead(rel.heardCredit, h.Credit)
	if h.Tag != uint16(ep.remote.ourKey) || h.PSN != uint16(rel.expect) || int32(ack-rel.nxt) > 0 {
		return false
	}
	var at datasheet.Reference
	if lent {
		if n != datasheet.ReferenceSize || r.lender == nil {
			return false
		}
		at = datasheet.ReferencesAt(payload)[0] // read once: the peer may be able to write it
		n = at.Length
	}
	in := r.await(ep, rel, n)
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
	if in.pushed != nil {
		in.pushed.void(in.pushedAt, uint64(n))
	}
	copy(in.memory, from)
	if lent && !r.lender.Return() {
		// Its sender has taken the memory back meanwhile.
		frame := r.lengthen(payload, h, lent)
		r.header, r.unanswered = *datasheet.HeaderAt(frame), false
		r.refuse()
		r.release(frame)
		return true
	}
	r.arrived(ep, rel, in, n, ack, credit, 0, 0)
	return true
}

// ahead is the number at or behind known, by less than 2^16, of which bits 15:0 are low.
func ahead(known uint32, low uint16) uint32 { return known + uint32(low-uint16(known)) }

// lengthen makes a whole frame of a short one, in memory of the engine.
func (r *lanes) lengthen(payload []byte, s datasheet.ShortHeader, lent bool) []byte {
	frame := r.ownFrame()[:datasheet.HeaderSize+len(payload)]
	copy(frame[datasheet.HeaderSize:], payload)
	length := uint32(len(payload))
	flags := datasheet.FrameFirst | datasheet.FrameLast
	if lent {
		flags |= datasheet.FrameReference
		length = 0
		for _, at := range datasheet.ReferencesAt(frame[datasheet.HeaderSize:]) {
			length += min(at.Length, datasheet.MaxMTU) // too much is refused
		}
	}
	h := r.wholeHeader(s)
	h.Flags, h.Length, h.Extent = flags, uint16(length), length
	*datasheet.HeaderAt(frame) = h
	return frame
}

// wholeHeader makes a whole header of a short one, but for length and flags. If no connection with
// its tag is remembered, Source is zero, and Key the tag.
func (r *lanes) wholeHeader(s datasheet.ShortHeader) datasheet.Header {
	h := datasheet.Header{Destination: r.mac, EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameData, DestinationEndpoint: uint32(s.Endpoint), Key: uint32(s.Tag), PSN: uint32(s.PSN)}
	ep := r.endpoint(h.DestinationEndpoint)
	if ep != nil && ep.remote.is(s.Tag) {
		h.PSN, h.Ack, h.Credit = ahead(ep.remote.theirKey, s.PSN), ahead(ep.remote.ourKey, s.Ack), uint32(s.Credit)
		if rel := rel(ep); rel != nil {
			h.PSN, h.Ack, h.Credit, h.Message = ahead(rel.expect, s.PSN), ahead(rel.heardAck, s.Ack), ahead(rel.heardCredit, s.Credit), rel.done
		}
		h.Source, h.SourceEndpoint, h.Key = ep.remote.mac, ep.remote.endpoint, ep.remote.ourKey
	} else if p := r.conns.lastWith(ep, s); p != nil {
		h.Source, h.SourceEndpoint, h.Key = p.mac, p.endpoint, p.ourKey
	}
	return h
}

// onShortEcho handles the news that the other side knows nothing of a connection on which this one has
// sent a short frame.
func (k *transport) onShortEcho(h *datasheet.Header) verdict {
	for _, ep := range k.living {
		if to, r := &ep.remote, rel(ep); r != nil && r.shorts && to.endpoint == h.SourceEndpoint && to.mac == h.Source && uint32(uint16(to.theirKey)) == h.Key {
			k.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, false)
			return taken
		}
	}
	return refused
}
