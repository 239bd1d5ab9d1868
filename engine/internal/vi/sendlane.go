package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// SendLane sends messages of one frame past what others need.
type SendLane struct{ *core.Transmitter }

// Lane sends the next message that the host has just posted, if all is as it mostly is. The
// connection is over a wire that loses nothing, and no other endpoint has something to send. The
// message is a send of one frame, from one piece of memory. Otherwise lane returns false, and
// nothing has been sent: the message, which may be fetched by then, takes the way from transmit
// on, which ends the same.
func (t SendLane) Lane(ep *core.Endpoint) bool {
	r, q := rel(ep), &ep.Send
	if r == nil || r.Wire == 0 || q.Posted() == 0 ||
		t.Events&(core.OnReady|core.Suspended) != 0 || t.Hooks|t.Waiting != 0 || t.Held || t.Timed || t.Checksum ||
		r.broken || r.fetched || r.next-r.head >= uint32(len(r.messages)) ||
		r.head != r.next && !r.message(r.next-1).AllCut || r.serving != nil && r.serving.due() {
		return false
	}
	m := r.message(r.next)
	r.nic.begin(ep, m, r.numbered)
	n, credit, buf, how := m.Total, uint32(0), []byte(nil), formWhole
	if m.Status == 0 && m.Control.Bits&core.UnlikeSends == 0 && n != 0 && n <= ep.MaxPayload && n >= ep.Shortest &&
		t.Regions.InOnePiece(&m.Layout) && m.Pushed == nil && (int32(r.limit-r.numbered) > 0 || r.moreCredit()) {
		if r.shorts {
			credit = r.Credit()
			buf, how = t.laneRoom(r, m.Memory, credit, m.Control.Bits)
		} else if n <= min(t.OneBurst, core.LendFrom-1) {
			buf = t.Reserve(&ep.Remote.MAC, datasheet.HeaderSize+int(n))
		}
	}
	if buf == nil || !t.DMA.Movers[core.Transmit].Whole(int(n), 0) {
		q.Fetched-- // it counts as posted
		r.fetched = true
		return false
	}
	r.stalled = false
	r.next++
	r.numbered++
	if how == formWhole {
		credit = core.Head(buf, ep, m, r.Nxt, 0, n, 0)
		copy(buf[datasheet.HeaderSize:], m.Memory)
		t.HandOver(int(n))
	} else {
		t.sendShort(r, buf, m.Memory, how, credit)
	}
	losslessVI{Reliable{r.nic}}.Sent(ep, m, r.Nxt, 0, n, credit, false)
	return true
}

// form says in which form the lane sends a message.
type form int

const (
	formWhole form = iota // with a header in front of it
	formShort
	formLent // a short frame that says where it is
)

// laneRoom returns where a message of the lane goes on a connection that knows short
// frames, and how. It is nil if the wire takes no more now, or if the lane cannot send it.
func (t SendLane) laneRoom(r *reliable, payload []byte, credit uint32, bits datasheet.Control) ([]byte, form) {
	n := len(payload)
	short := bits&datasheet.ControlImmediate == 0 && r.tells(credit)
	if n >= core.LendFrom && short && t.Lends(r.Ep) {
		if id, at, ok := t.Lender.Lend(payload); ok {
			t.References[0] = datasheet.Reference{Region: id, Length: uint32(n), Offset: at}
			return t.Slots.ReserveShort(datasheet.ReferenceSize), formLent
		}
	}
	if n > int(t.OneBurst) {
		return nil, formWhole
	}
	if short {
		if to := t.Slots.ReserveShort(n); to != nil {
			return to, formShort
		}
	}
	if n >= core.LendFrom {
		return nil, formWhole
	}
	return t.Reserve(&r.Ep.Remote.MAC, datasheet.HeaderSize+n), formWhole
}

// sendShort sends payload, or a reference to it, in the room that laneRoom has returned for a short frame.
func (t SendLane) sendShort(r *reliable, to, payload []byte, how form, credit uint32) {
	h := datasheet.ShortHeader{Endpoint: uint16(r.Ep.Remote.Endpoint), PSN: uint16(r.Nxt), Ack: uint16(r.Expect), Credit: uint16(credit)}
	// The peer need not wait for the book-keeping behind the last of a run.
	tag, last := uint16(r.Ep.Remote.TheirKey), r.Ep.Send.Posted() == 0
	if how == formShort {
		t.Slots.CommitShort(h, tag, payload, false, last)
	} else {
		copy(datasheet.ReferencesAt(to), t.References[:1])
		t.Slots.CommitShort(h, tag, nil, true, false)
		t.Lender.Lent(r.Ep.ID)
		r.Lent, last = r.Nxt+1, false
	}
	if t.Handed(len(payload)); last {
		t.Events &^= core.Unflushed
	}
}
