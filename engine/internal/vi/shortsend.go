package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
	h := datasheet.ShortHeader{Endpoint: uint16(r.Ep.Remote.Endpoint), PSN: uint16(r.Nxt), Ack: uint16(r.Expect),
		Credit: uint16(credit), Tag: uint16(r.Ep.Remote.TheirKey)}
	if how == formShort {
		copy(to, payload)
		t.Slots.CommitShort(h, false)
	} else {
		copy(datasheet.ReferencesAt(to), t.References[:1])
		t.Slots.CommitShort(h, true)
		t.Lender.Lent(r.Ep.ID)
		r.Lent = r.Nxt + 1
	}
	t.Handed(len(payload))
}
