package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// form says in which form the lane sends a message.
type form int

const (
	formWhole form = iota // with a header in front of it
	formShort
	formLent // a short frame that says where it is
)

// laneRoom returns where a message of the lane goes on a connection that knows short
// frames, and how. It is nil if the wire takes no more now, or if the lane cannot send it.
func (t sendLane) laneRoom(r *reliable, payload []byte, credit uint32, bits datasheet.Control) ([]byte, form) {
	n := len(payload)
	short := bits&datasheet.ControlImmediate == 0 && r.tells(credit)
	if n >= lendFrom && short && t.lends(r.ep) {
		if id, at, ok := t.lender.Lend(payload); ok {
			t.references[0] = datasheet.Reference{Region: id, Length: uint32(n), Offset: at}
			return t.slots.ReserveShort(datasheet.ReferenceSize), formLent
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
	return t.reserve(&r.ep.remote.mac, datasheet.HeaderSize+n), formWhole
}

// sendShort sends payload, or a reference to it, in the room that laneRoom has returned for a short frame.
func (t sendLane) sendShort(r *reliable, to, payload []byte, how form, credit uint32) {
	h := datasheet.ShortHeader{Endpoint: uint16(r.ep.remote.endpoint), PSN: uint16(r.nxt), Ack: uint16(r.expect),
		Credit: uint16(credit), Tag: uint16(r.ep.remote.theirKey)}
	if how == formShort {
		copy(to, payload)
		t.slots.CommitShort(h, false)
	} else {
		copy(datasheet.ReferencesAt(to), t.references[:1])
		t.slots.CommitShort(h, true)
		t.lender.Lent(r.ep.id)
		r.lent = r.nxt + 1
	}
	t.handed(len(payload))
}
