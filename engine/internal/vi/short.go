package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// short takes a short frame that Path.poll has left.
func short(r *core.Receiver, payload []byte, header uint64, b datasheet.ShortBeside) {
	p := pathTo(r.Core, header)
	switch {
	case takeShort(r, p, payload, header, b):
	case p.takeUnusual(payload, header, b):
		r.Shorts.Pass(false)
	default:
		r.Copied = true
		r.TakeFrame(lengthen(r, payload, header, b))
	}
}

// takeShort takes a short frame as Path.poll does, with references, too.
func takeShort(r *core.Receiver, p *Path, payload []byte, header uint64, b datasheet.ShortBeside) bool {
	from, lent, write := payload, b&datasheet.ShortLent != 0, b&datasheet.ShortWrite != 0
	if write {
		from = payload[min(datasheet.ExtensionSize, len(payload)):]
	}
	n := uint32(len(from))
	if p == nil || p.sends == nil || !r.Plain || n == 0 {
		return false
	}
	var at datasheet.Reference
	if lent {
		if n != datasheet.ReferenceSize || r.Lender == nil {
			return false
		}
		at = datasheet.ReferencesAt(from)[0] // read once: the peer may be able to write it
		n = at.Length
	}
	var seg *datasheet.ControlSegment
	var to []byte
	if write {
		to = p.target(payload, header, b, n)
	} else if s, memory := p.expected(header, b, n); s != nil {
		seg, to = s, bytesAt(memory, n)
	}
	if to == nil {
		return false
	}
	if lent {
		if from = r.Lender.Borrow(at.Region, at.Offset, uint64(n)); len(from) != int(n) {
			return false
		}
	}
	copy(to, from)
	if lent && !r.Lender.Return() {
		// Its sender has taken the memory back meanwhile.
		frame := lengthen(r, payload, header, b)
		r.Header, r.Unanswered, r.Copied = *datasheet.HeaderAt(frame), false, true
		r.Refuse()
		r.Release(frame)
		return true
	}
	if st := datasheet.StatusDone | datasheet.StatusOpReceive; write {
		p.took(header, n)
	} else {
		if b&datasheet.ShortImmediate != 0 {
			seg.Immediate = b.Immediate()
			st |= datasheet.StatusImmediate
		}
		p.landed(seg, header, n, st)
	}
	r.Shorts.Pass(false)
	return true
}

// takeUnusual is takeShort for queues without tokens. Its caller passes the frame.
func (p *Path) takeUnusual(payload []byte, header uint64, b datasheet.ShortBeside) bool {
	n := uint32(len(payload))
	switch {
	case p == nil || p.sends != nil || !p.k.Plain || b&(datasheet.ShortLent|datasheet.ShortWrite) != 0 || n > p.Ep.MaxTransfer || n < p.Ep.Shortest:
		return false
	case p.u != nil:
		return p.takeLoose(payload, header, b)
	}
	return p.isNext(header, b) && p.takeFormatted(payload, header, b)
}

// takeFormatted takes the next message of a reliable connection.
func (p *Path) takeFormatted(payload []byte, header uint64, b datasheet.ShortBeside) bool {
	n, r, q := uint32(len(payload)), p.r, &p.Ep.Recv
	if q.Fetched == q.Completed {
		r.takeReceives(1)
	}
	in := r.receipt(r.Done)
	if q.Fetched == q.Completed || in.Open || in.Status != 0 || in.Stamp != p.k.Regions.Stamp {
		return false
	}
	if !p.lay(in, payload, b) {
		return false
	}
	r.Done++
	p.took(header, n)
	p.k.Delivered = true
	p.k.Count(datasheet.CounterMessagesReceived, 1)
	p.Ep.Kind.Format.Complete(p.Ep, q, &in.Layout, n, b.Immediate(), immediateOf(b))
	return true
}

// lay copies a message to its place, unless it has none in one or two pieces.
func (p *Path) lay(in *core.Receipt, payload []byte, b datasheet.ShortBeside) bool {
	n := uint32(len(payload))
	if n <= uint32(len(in.Memory)) {
		copy(in.Memory, payload)
		return true
	}
	to := &in.Entry.Pieces
	if to[1] = nil; p.Ep.Kind.Format.Destination(p.Ep, in, 0, n, b.Immediate(), b&datasheet.ShortImmediate != 0) != 0 || to[1] == nil || in.Discards {
		return false
	}
	copy(to[1], payload[copy(to[0], payload):])
	return true
}

// takeLoose takes a message. One that finds no receive is dropped.
func (p *Path) takeLoose(payload []byte, header uint64, b datasheet.ShortBeside) bool {
	u, k, n := p.u, p.k, uint32(len(payload))
	in := &u.in
	if uint16(b) != p.tag || in.Open || u.receive {
		return false
	}
	if p.Ep.Recv.Posted() == 0 || !k.takeReceive(p.Ep, in) {
		return false
	}
	u.receive, u.fetched = true, in.Status
	if in.Status != 0 || in.Stamp != k.Regions.Stamp || !p.lay(in, payload, b) {
		return false
	}
	u.Hear(&k.Clock)
	u.next, u.receive = ahead(u.next, uint16(header>>16))+1, false
	k.Progress++
	k.Count(datasheet.CounterFramesReceived, 1)
	k.Count(datasheet.CounterBytesReceived, uint64(n))
	k.Count(datasheet.CounterMessagesReceived, 1)
	p.Ep.Kind.Format.Complete(p.Ep, &p.Ep.Recv, &in.Layout, n, b.Immediate(), immediateOf(b))
	return true
}

// immediateOf is StatusImmediate if a short frame has immediate data.
func immediateOf(b datasheet.ShortBeside) datasheet.Status {
	if b&datasheet.ShortImmediate != 0 {
		return datasheet.StatusImmediate
	}
	return 0
}

// lengthen makes a whole frame of a short one, in memory of the engine.
func lengthen(r *core.Receiver, payload []byte, header uint64, b datasheet.ShortBeside) []byte {
	frame := r.OwnFrame()[:datasheet.HeaderSize+len(payload)]
	copy(frame[datasheet.HeaderSize:], payload)
	t, length := datasheet.FrameData, uint32(len(payload))
	flags := datasheet.FrameFirst | datasheet.FrameLast
	if b&datasheet.ShortImmediate != 0 {
		flags |= datasheet.FrameImmediate
	}
	at := datasheet.HeaderSize
	if b&datasheet.ShortWrite != 0 {
		t, at, length = datasheet.FrameWrite, at+datasheet.ExtensionSize, max(length, datasheet.ExtensionSize)-datasheet.ExtensionSize
	}
	if b&datasheet.ShortLent != 0 {
		flags |= datasheet.FrameReference
		length = 0
		for _, at := range datasheet.ReferencesAt(frame[min(at, len(frame)):]) {
			length += min(at.Length, datasheet.MaxMTU) // too much is refused
		}
	}
	h := wholeHeader(r, header, b.Tag())
	h.Type, h.Flags, h.Length, h.Extent, h.Immediate = t, flags, uint16(length), length, b.Immediate()
	*datasheet.HeaderAt(frame) = h
	return frame
}

// wholeHeader makes a whole header of a short one, but for length and flags. If no connection with
// its tag is remembered, Source is zero, and Key the tag.
func wholeHeader(r *core.Receiver, header uint64, tag uint16) datasheet.Header {
	psn, ack, credit := uint16(header>>16), uint16(header>>32), uint16(header>>48)
	h := datasheet.Header{Destination: r.MAC, EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameData, DestinationEndpoint: uint32(uint16(header)), Key: uint32(tag), PSN: uint32(psn)}
	ep := r.Endpoint(h.DestinationEndpoint)
	if ep != nil && ep.Remote.Is(tag) && cameFrom(r.Core, ep) {
		h.PSN, h.Ack, h.Credit = ahead(ep.Remote.TheirKey, psn), ahead(ep.Remote.OurKey, ack), uint32(credit)
		if rel := rel(ep); rel != nil {
			h.PSN, h.Ack, h.Credit, h.Message = ahead(rel.Expect, psn), ahead(rel.heardAck, ack), ahead(rel.heardCredit, credit), rel.Done
		}
		if u := unrel(ep); u != nil {
			h.Message = ahead(u.next, psn)
		}
		h.Source, h.SourceEndpoint, h.Key = ep.Remote.MAC, ep.Remote.Endpoint, ep.Remote.OurKey
	} else if p := r.Conns.LastWith(ep, h.DestinationEndpoint, tag); p != nil {
		h.Source, h.SourceEndpoint, h.Key = p.MAC, p.Endpoint, p.OurKey
	}
	return h
}

// OnShortEcho handles the news that the other side knows nothing of a connection on which this one has
// sent a short frame.
func (k *Transport) OnShortEcho(h *datasheet.Header) core.Verdict {
	for _, ep := range k.Living {
		if to, r := &ep.Remote, rel(ep); r != nil && r.shorts && to.Endpoint == h.SourceEndpoint && to.MAC == h.Source && uint32(uint16(to.TheirKey)) == h.Key {
			k.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, false)
			return core.Taken
		}
	}
	return core.Refused
}
