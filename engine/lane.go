package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// lane takes a message of one frame that has arrived whole, if all is as it mostly is: the
// connection is over a wire that loses nothing, the frame is its next, nobody but the
// policy has a say, and the receive that was fetched ahead is as it was then. Otherwise
// it returns false, and nothing has happened: the frame takes the way from takeFrame on,
// which ends the same.
func (r *receiver) lane(buf []byte) bool {
	on := datasheet.HeaderAt(buf)
	if on == nil || r.hooks&arriveWhole != 0 {
		return false
	}
	h := &r.header
	*h = *on
	ep := r.endpoint(h.DestinationEndpoint)
	if ep == nil || ep.rel == nil || ep.rel.wire == 0 || ep.state != datasheet.StateConnected {
		return false
	}
	rel, q := ep.rel, &ep.recv
	in := rel.receipt(rel.done)
	const alone = datasheet.FrameFirst | datasheet.FrameLast
	if !h.SamePath(&rel.inbound) || h.Flags&^datasheet.FrameImmediate != alone ||
		h.PSN != rel.expect || h.Message != rel.done || h.Offset != 0 || h.Extent != uint32(h.Length) ||
		int(h.Length) > len(buf)-datasheet.HeaderSize || h.Extent > ep.maxTransfer || h.Extent < ep.shortest ||
		int32(h.Ack-rel.nxt) > 0 ||
		q.fetched == q.completed || in.open || in.status != 0 || !r.regions.inOnePiece(&in.layout) || h.Extent > in.total ||
		h.Length != 0 && !r.dma.movers[Receive].Whole(int(h.Length), 0) {
		return false
	}
	if in.pushed != nil {
		in.pushed.void(in.pushedAt, uint64(h.Length))
	}
	copy(in.memory, buf[datasheet.HeaderSize:datasheet.HeaderSize+int(h.Length)])
	r.countReceived(int(h.Length))
	rel.hear(&r.clock)
	rel.acknowledged(h)
	rel.expect++
	rel.done++
	if rel.wants {
		rel.answerCredit()
	}
	rel.nic.handed = true
	var flags datasheet.Status
	if h.Flags&datasheet.FrameImmediate != 0 {
		flags = datasheet.StatusImmediate
	}
	r.count(datasheet.CounterMessagesReceived, 1)
	if ep.plain {
		r.cqs.complete(ep, q, &in.layout, h.Extent, h.Immediate, flags)
	} else {
		ep.kind.complete(ep, q, &in.layout, h.Extent, h.Immediate, flags)
	}
	r.port.Release()
	return true
}
