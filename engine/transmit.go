package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// transmit gives every endpoint that has something to send a turn. It reports
// whether anything went out.
func (e *Engine) transmit() bool {
	if len(e.ready) == 0 {
		return false
	}
	turn := e.ready
	e.ready = e.spare[:0]
	before := e.progress
	for i, ep := range turn {
		turn[i], ep.queued = nil, false
		more := false
		switch {
		case ep.rel != nil:
			more = e.transmitReliable(ep, transmitQuantum)
		case ep.unrel != nil:
			more = e.transmitUnreliable(ep, transmitQuantum)
		}
		if more {
			e.makeReady(ep)
		}
	}
	e.spare = turn[:0]
	return e.progress != before
}

// begin starts a message, unless st says that its token could not be read: its
// descriptor is fetched and every segment checked. What is wrong shows in
// m.status.
func (e *Engine) begin(ep *endpoint, m *sending, t descriptors.Token, st descriptors.Status, number uint32) {
	m.token, m.number, m.cut, m.begun, m.allCut, m.lastPSN, m.status = t, number, 0, true, false, 0, st
	if m.status == 0 {
		m.control, m.status = e.fetch(ep, t, &m.layout)
	}
	if m.status == 0 && m.total > ep.maxTransfer {
		m.status = descriptors.StatusLengthError
	}
	if m.status == 0 {
		m.status = e.check(&m.layout, ep.ptag, false)
	}
}

// sendData sends the frame of m that starts at offset. It returns the bytes of
// payload sent, or -1 if the wire takes no more now, or the status that ends
// the message.
func (e *Engine) sendData(ep *endpoint, m *sending, psn, offset uint32, flags descriptors.FrameFlags) (int, descriptors.Status) {
	n := min(m.total-offset, e.maxPayload)
	if offset == 0 {
		flags |= descriptors.FrameFirst
	}
	if offset+n == m.total {
		flags |= descriptors.FrameLast
	}
	if m.control.bits&descriptors.ControlImmediate != 0 {
		flags |= descriptors.FrameImmediate
	}
	h := descriptors.Header{
		Destination: ep.remote.mac, Type: descriptors.FrameData, Flags: flags,
		DestinationEndpoint: ep.remote.endpoint, SourceEndpoint: ep.id, Key: ep.remote.theirKey,
		PSN: psn, Message: m.number, Extent: m.total, Offset: offset, Immediate: m.control.immediate,
	}
	if r := ep.rel; r != nil {
		h.Ack, h.Credit = r.expect, e.credit(ep)
	}
	buf := e.frame(&h, int(n))
	if buf == nil {
		return -1, 0
	}
	if st := e.gather(buf[descriptors.HeaderSize:], &m.layout, offset, ep.ptag); st != 0 {
		return 0, st
	}
	e.commit(&h, buf)
	if r := ep.rel; r != nil {
		r.owed, r.offered = false, h.Credit
	}
	return int(n), 0
}
