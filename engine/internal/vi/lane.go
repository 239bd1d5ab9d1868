package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sendLane sends messages of one frame past what others need.
type sendLane struct {
	*core.Transmitter
	reference []byte // room for one
}

func newSendLane(t *core.Transmitter) *sendLane {
	return &sendLane{t, core.Aligned(datasheet.ReferenceSize)}
}

// send sends the next message of a VI that the host has posted, if all is as it mostly is. The
// connection is over a wire that loses nothing. The message is a send of one frame, from one piece of
// memory. Otherwise it returns false, and nothing has been sent: the message, which may be fetched by
// then, takes the way from transmit on, which ends the same.
func (t *sendLane) send(ep *core.Endpoint) bool {
	r, q := rel(ep), &ep.Send
	if r == nil || r.Wire == 0 || q.Posted() == 0 ||
		t.Events&core.Suspended != 0 || t.Hooks|t.Waiting != 0 || t.Held || t.Timed || t.Checksum ||
		r.broken || r.next-r.head >= uint32(len(r.messages)) ||
		r.head != r.next && !r.message(r.next-1).AllCut || r.serving != nil && r.serving.due() {
		return false
	}
	m := r.message(r.next)
	var usual bool
	if !r.fetched {
		usual = r.nic.begin(ep, m, r.numbered)
	} else { // it waited for credit
		q.Fetched++
		r.fetched = false
		usual = m.Status == 0 && m.Control.Bits&core.UnlikeSends == 0 && m.Pushed == nil && t.Regions.InOnePiece(&m.Layout)
	}
	if !usual && t.Regions.Direct.Open && r.carryNext(m) {
		return true
	}
	n, mover := m.Total, t.DMA.Movers[core.Transmit]
	sent := usual && n != 0 && n <= ep.MaxPayload && n >= ep.Shortest && (int32(r.limit-r.numbered) > 0 || r.moreCredit()) && mover.Whole(int(n), int(q.Posted()))
	if sent && !t.launch(r, m) {
		mover.Undo()
		sent = false
	}
	if !sent {
		q.Fetched-- // it counts as posted
		r.fetched = true
		return false
	}
	r.stalled = false
	r.next++
	r.numbered++
	r.left(m)
	return true
}

// launch sends m as a frame: short if both ends know such, else whole.
func (t *sendLane) launch(r *reliable, m *core.Sending) bool {
	credit, n := r.Credit(), m.Total
	if !r.shorts || !r.tells(credit) || !t.launchShort(r, m, credit) {
		if n > t.OneBurst || n >= core.LendFrom && t.Lends(r.Ep) {
			return false
		}
		buf := t.Reserve(&r.Ep.Remote.MAC, datasheet.HeaderSize+int(n))
		if buf == nil {
			return false
		}
		credit = core.Head(buf, r.Ep, m, r.Nxt, 0, n, 0)
		copy(buf[datasheet.HeaderSize:], m.Memory)
		t.HandOver(int(n))
	}
	r.Tell(credit)
	return true
}

// launchShort sends m, or a reference to its memory, as a short frame.
func (t *sendLane) launchShort(r *reliable, m *core.Sending, credit uint32) bool {
	payload, beside := m.Memory, datasheet.ShortBeside(uint16(r.Ep.Remote.TheirKey))
	if m.Control.Bits&datasheet.ControlImmediate != 0 {
		beside = beside.WithImmediate(m.Control.Immediate)
	}
	h := datasheet.ShortHeader{Endpoint: uint16(r.Ep.Remote.Endpoint), PSN: uint16(r.Nxt), Ack: uint16(r.Expect), Credit: uint16(credit)}
	if len(payload) >= core.LendFrom && t.Lends(r.Ep) {
		if id, at, ok := t.Lender.Lend(payload); ok {
			datasheet.ReferencesAt(t.reference)[0] = datasheet.Reference{Region: id, Length: uint32(len(payload)), Offset: at}
			if !t.Slots.SendShort(h, beside|datasheet.ShortLent, t.reference, false) {
				return false
			}
			t.Lender.Lent(r.Ep.ID)
			r.Lent = r.Nxt + 1
			t.Handed(len(payload))
			return true
		}
	}
	// The peer need not wait for the book-keeping behind the last of a run.
	last := r.Ep.Send.Posted() == 0
	if len(payload) > int(t.OneBurst) || !t.Slots.SendShort(h, beside, payload, last) {
		return false
	}
	if t.Handed(len(payload)); last {
		t.Events &^= core.Unflushed
	}
	return true
}

// lane takes a message of one frame that has arrived whole, if all is as it mostly is: the
// connection is over a wire that loses nothing, the frame is its next, only the
// policy has a say, and the receive that was fetched ahead is as it was then. Otherwise
// it returns false, and nothing has happened: the frame takes the way from TakeFrame on,
// which ends the same.
func lane(r *core.Receiver, buf []byte) bool {
	on := datasheet.HeaderAt(buf)
	if on == nil || r.Hooks&core.ArriveWhole != 0 {
		return false
	}
	h := &r.Header
	*h = *on
	ep := r.Endpoint(h.DestinationEndpoint)
	if ep == nil || ep.State != datasheet.StateConnected {
		return false
	}
	rel := rel(ep)
	if rel == nil || rel.Wire == 0 {
		return false
	}
	const alone = datasheet.FrameFirst | datasheet.FrameLast
	if !h.SamePath(&rel.inbound) || h.Flags&^datasheet.FrameImmediate != alone ||
		h.PSN != rel.Expect || h.Message != rel.Done || h.Offset != 0 || h.Extent != uint32(h.Length) ||
		int(h.Length) > len(buf)-datasheet.HeaderSize || int32(h.Ack-rel.Nxt) > 0 {
		return false
	}
	in := await(r, ep, rel, h.Extent)
	if in == nil || h.Length != 0 && !r.DMA.Movers[core.Receive].Whole(int(h.Length), 0) {
		return false
	}
	var flags datasheet.Status
	if h.Flags&datasheet.FrameImmediate != 0 {
		flags = datasheet.StatusImmediate
	}
	if in.Pushed != nil {
		in.Pushed.Void(in.PushedAt, uint64(h.Length))
	}
	copy(in.Memory, buf[datasheet.HeaderSize:datasheet.HeaderSize+int(h.Length)])
	arrived(r, ep, rel, in, h.Extent, h.Ack, h.Credit, h.Immediate, flags)
	return true
}

// await returns the receive of the endpoint's next message, which has n bytes in one frame. It is nil
// unless that was fetched ahead, is as it was then, and takes so much in one piece.
func await(r *core.Receiver, ep *core.Endpoint, rel *reliable, n uint32) *core.Receipt {
	in, q := rel.receipt(rel.Done), &ep.Recv
	if n > ep.MaxTransfer || n < ep.Shortest || q.Fetched == q.Completed || in.Open || in.Status != 0 ||
		in.Stamp != r.Regions.Stamp || in.Memory == nil || n > in.Total {
		return nil
	}
	return in
}

// arrived completes the message of n bytes that has been copied to its place, and gives its frame back.
func arrived(r *core.Receiver, ep *core.Endpoint, rel *reliable, in *core.Receipt, n, ack, credit, immediate uint32, flags datasheet.Status) {
	r.Count(datasheet.CounterFramesReceived, 1)
	r.Count(datasheet.CounterBytesReceived, uint64(n))
	rel.Hear(&r.Clock)
	rel.acknowledged(ack, credit)
	rel.Expect++
	rel.Done++
	if rel.wants {
		rel.answerCredit()
	}
	rel.nic.Handed = true
	r.Count(datasheet.CounterMessagesReceived, 1)
	if k := rel.nic; k.format == nil {
		k.CQs.Complete(ep, &ep.Recv, &in.Layout, n, immediate, flags)
	} else {
		k.format.Complete(ep, &ep.Recv, &in.Layout, n, immediate, flags)
	}
	r.Port.Release()
}

func short(r *core.Receiver, payload []byte, h datasheet.ShortHeader, b datasheet.ShortBeside) {
	if !shortLane(r, payload, h, b) {
		r.TakeFrame(lengthen(r, payload, h, b))
	}
}

// shortLane does for a short frame what lane does for others.
func shortLane(r *core.Receiver, payload []byte, h datasheet.ShortHeader, b datasheet.ShortBeside) bool {
	ep := r.Endpoint(uint32(h.Endpoint))
	if ep == nil || ep.State != datasheet.StateConnected || r.Hooks&core.ArriveWhole != 0 {
		return false
	}
	rel, n := rel(ep), uint32(len(payload))
	if rel == nil || !rel.shorts {
		return false
	}
	ack, credit := ahead(rel.heardAck, h.Ack), ahead(rel.heardCredit, h.Credit)
	if b.Tag() != uint16(ep.Remote.OurKey) || h.PSN != uint16(rel.Expect) || int32(ack-rel.Nxt) > 0 {
		return false
	}
	var at datasheet.Reference
	lent := b&datasheet.ShortLent != 0
	if lent {
		if n != datasheet.ReferenceSize || r.Lender == nil {
			return false
		}
		at = datasheet.ReferencesAt(payload)[0] // read once: the peer may be able to write it
		n = at.Length
	}
	in := await(r, ep, rel, n)
	if in == nil || n == 0 {
		return false
	}
	from := payload
	if lent {
		if from = r.Lender.Borrow(at.Region, at.Offset, uint64(n)); len(from) != int(n) {
			return false
		}
	}
	if !r.DMA.Movers[core.Receive].Whole(int(n), 0) {
		return false
	}
	if in.Pushed != nil {
		in.Pushed.Void(in.PushedAt, uint64(n))
	}
	copy(in.Memory, from)
	if lent && !r.Lender.Return() {
		// Its sender has taken the memory back meanwhile.
		frame := lengthen(r, payload, h, b)
		r.Header, r.Unanswered = *datasheet.HeaderAt(frame), false
		r.Refuse()
		r.Release(frame)
		return true
	}
	var flags datasheet.Status
	if b&datasheet.ShortImmediate != 0 {
		flags = datasheet.StatusImmediate
	}
	arrived(r, ep, rel, in, n, ack, credit, b.Immediate(), flags)
	return true
}

// ahead is the number at or behind known, by less than 2^16, of which bits 15:0 are low.
func ahead(known uint32, low uint16) uint32 { return known + uint32(low-uint16(known)) }

// lengthen makes a whole frame of a short one, in memory of the engine.
func lengthen(r *core.Receiver, payload []byte, s datasheet.ShortHeader, b datasheet.ShortBeside) []byte {
	frame := r.OwnFrame()[:datasheet.HeaderSize+len(payload)]
	copy(frame[datasheet.HeaderSize:], payload)
	length := uint32(len(payload))
	flags := datasheet.FrameFirst | datasheet.FrameLast
	if b&datasheet.ShortImmediate != 0 {
		flags |= datasheet.FrameImmediate
	}
	if b&datasheet.ShortLent != 0 {
		flags |= datasheet.FrameReference
		length = 0
		for _, at := range datasheet.ReferencesAt(frame[datasheet.HeaderSize:]) {
			length += min(at.Length, datasheet.MaxMTU) // too much is refused
		}
	}
	h := wholeHeader(r, s, b.Tag())
	h.Flags, h.Length, h.Extent, h.Immediate = flags, uint16(length), length, b.Immediate()
	*datasheet.HeaderAt(frame) = h
	return frame
}

// wholeHeader makes a whole header of a short one, but for length and flags. If no connection with
// its tag is remembered, Source is zero, and Key the tag.
func wholeHeader(r *core.Receiver, s datasheet.ShortHeader, tag uint16) datasheet.Header {
	h := datasheet.Header{Destination: r.MAC, EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameData, DestinationEndpoint: uint32(s.Endpoint), Key: uint32(tag), PSN: uint32(s.PSN)}
	ep := r.Endpoint(h.DestinationEndpoint)
	if ep != nil && ep.Remote.Is(tag) {
		h.PSN, h.Ack, h.Credit = ahead(ep.Remote.TheirKey, s.PSN), ahead(ep.Remote.OurKey, s.Ack), uint32(s.Credit)
		if rel := rel(ep); rel != nil {
			h.PSN, h.Ack, h.Credit, h.Message = ahead(rel.Expect, s.PSN), ahead(rel.heardAck, s.Ack), ahead(rel.heardCredit, s.Credit), rel.Done
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
