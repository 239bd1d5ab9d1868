package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// lanes take messages of one frame past what others need.
type lanes struct{ *receiver }

// lane takes a message of one frame that has arrived whole, if all is as it mostly is: the
// connection is over a wire that loses nothing, the frame is its next, nobody but the
// policy has a say, and the receive that was fetched ahead is as it was then. Otherwise
// it returns false, and nothing has happened: the frame takes the way from takeFrame on,
// which ends the same.
func (r *lanes) lane(buf []byte) bool {
	on := datasheet.HeaderAt(buf)
	if on == nil || r.hooks&arriveWhole != 0 {
		return false
	}
	h := &r.header
	*h = *on
	ep := r.endpoint(h.DestinationEndpoint)
	if ep == nil || ep.state != datasheet.StateConnected {
		return false
	}
	rel := rel(ep)
	if rel == nil || rel.wire == 0 {
		return false
	}
	const alone = datasheet.FrameFirst | datasheet.FrameLast
	if !h.SamePath(&rel.inbound) || h.Flags&^datasheet.FrameImmediate != alone ||
		h.PSN != rel.expect || h.Message != rel.done || h.Offset != 0 || h.Extent != uint32(h.Length) ||
		int(h.Length) > len(buf)-datasheet.HeaderSize || int32(h.Ack-rel.nxt) > 0 {
		return false
	}
	in := r.await(ep, rel, h.Extent)
	if in == nil || h.Length != 0 && !r.dma.movers[Receive].Whole(int(h.Length), 0) {
		return false
	}
	var flags datasheet.Status
	if h.Flags&datasheet.FrameImmediate != 0 {
		flags = datasheet.StatusImmediate
	}
	if in.pushed != nil {
		in.pushed.void(in.pushedAt, uint64(h.Length))
	}
	copy(in.memory, buf[datasheet.HeaderSize:datasheet.HeaderSize+int(h.Length)])
	r.arrived(ep, rel, in, h.Extent, h.Ack, h.Credit, h.Immediate, flags)
	return true
}

// await returns the receive of the endpoint's next message, which has n bytes in one frame. It is nil
// unless that was fetched ahead, is as it was then, and takes so much in one piece.
func (r *lanes) await(ep *endpoint, rel *reliable, n uint32) *receipt {
	in, q := rel.receipt(rel.done), &ep.recv
	if n > ep.maxTransfer || n < ep.shortest || q.fetched == q.completed || in.open || in.status != 0 ||
		!r.regions.inOnePiece(&in.layout) || n > in.total {
		return nil
	}
	return in
}

// arrived completes the message of n bytes that has been copied to its place, and gives its frame back.
func (r *lanes) arrived(ep *endpoint, rel *reliable, in *receipt, n, ack, credit, immediate uint32, flags datasheet.Status) {
	r.countReceived(int(n))
	rel.hear(&r.clock)
	rel.acknowledged(ack, credit)
	rel.expect++
	rel.done++
	if rel.wants {
		rel.answerCredit()
	}
	rel.nic.handed = true
	r.count(datasheet.CounterMessagesReceived, 1)
	rel.nic.complete(ep, &ep.recv, &in.layout, n, immediate, flags)
	r.port.Release()
}
