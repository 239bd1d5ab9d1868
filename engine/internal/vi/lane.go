package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// lanes take messages of one frame past what others need.
type lanes struct{ *core.Receiver }

// lane takes a message of one frame that has arrived whole, if all is as it mostly is: the
// connection is over a wire that loses nothing, the frame is its next, nobody but the
// policy has a say, and the receive that was fetched ahead is as it was then. Otherwise
// it returns false, and nothing has happened: the frame takes the way from takeFrame on,
// which ends the same.
func (r *lanes) lane(buf []byte) bool {
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
	in := r.await(ep, rel, h.Extent)
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
	r.arrived(ep, rel, in, h.Extent, h.Ack, h.Credit, h.Immediate, flags)
	return true
}

// await returns the receive of the endpoint's next message, which has n bytes in one frame. It is nil
// unless that was fetched ahead, is as it was then, and takes so much in one piece.
func (r *lanes) await(ep *core.Endpoint, rel *reliable, n uint32) *core.Receipt {
	in, q := rel.receipt(rel.Done), &ep.Recv
	if n > ep.MaxTransfer || n < ep.Shortest || q.Fetched == q.Completed || in.Open || in.Status != 0 ||
		!r.Regions.InOnePiece(&in.Layout) || n > in.Total {
		return nil
	}
	return in
}

// arrived completes the message of n bytes that has been copied to its place, and gives its frame back.
func (r *lanes) arrived(ep *core.Endpoint, rel *reliable, in *core.Receipt, n, ack, credit, immediate uint32, flags datasheet.Status) {
	r.CountReceived(int(n))
	rel.Hear(&r.Clock)
	rel.acknowledged(ack, credit)
	rel.Expect++
	rel.Done++
	if rel.wants {
		rel.answerCredit()
	}
	rel.nic.Handed = true
	r.Count(datasheet.CounterMessagesReceived, 1)
	rel.nic.Complete(ep, &ep.Recv, &in.Layout, n, immediate, flags)
	r.Port.Release()
}
