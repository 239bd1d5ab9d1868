package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// send sends a frame of no established connection, with a body unless that is nil, and
// zeros behind that up to h.Length. It returns false if the wire takes no more now.
func (t *transmitter) send(h *descriptors.Header, body *descriptors.ConnectBody) bool {
	if body != nil {
		h.Length = max(h.Length, descriptors.ConnectBodySize)
	}
	buf := t.reserve(descriptors.HeaderSize + int(h.Length))
	if buf == nil {
		return false
	}
	t.sign(h)
	*descriptors.HeaderAt(buf) = *h
	if body != nil {
		*descriptors.ConnectBodyAt(buf[descriptors.HeaderSize:]) = *body
		clear(buf[descriptors.HeaderSize+descriptors.ConnectBodySize:])
	}
	t.launch(buf)
	return true
}

// sendAck sends an acknowledgement or a probe, which on an unreliable connection
// only say that this end lives. It returns false if the wire takes no more now.
func (t *transmitter) sendAck(ep *endpoint, which descriptors.FrameType) bool {
	buf := t.reserve(descriptors.HeaderSize)
	if buf == nil {
		return false
	}
	h := descriptors.HeaderAt(buf)
	*h = ep.outline
	h.Type = which
	if r := ep.rel; r != nil {
		r.ackDue, r.offered = false, r.credit()
		h.PSN, h.Ack, h.Credit = r.nxt, r.expect, r.offered
		if w := r.window; w != nil && which == descriptors.FrameAck {
			h.Extent, h.Offset, h.Message, h.Immediate = uint32(w.have), uint32(w.have>>32), w.twice, w.came
		}
	}
	t.launch(buf)
	return true
}
