package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// sending is a message on its way out.
type sending struct {
	layout
	token   descriptors.Token
	control control
	number  uint32
	cut     uint32 // bytes that have been cut into frames
	begun   bool   // a frame has been cut
	allCut  bool
	lastPSN uint32
	status  descriptors.Status // non-zero: it has failed on this side
}

// transmit gives every endpoint that has something to send a turn. It reports
// whether anything went out.
func (e *Engine) transmit() bool {
	before := e.progress
	if e.out.held {
		// Nobody else can send until this frame has left.
		if moved := e.resumeSend(); e.out.held {
			return moved
		}
	}
	if len(e.ready.members) == 0 {
		return e.progress != before
	}
	turn := e.ready.members
	e.alone = len(turn) == 1
	e.ready.members = e.spare[:0]
	for i, ep := range turn {
		turn[i], ep.listed = nil, ep.listed&^onReady
		if ep.state == descriptors.StateConnected && ep.kind.transmit(e, ep, transmitQuantum) {
			e.ready.add(ep)
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
		m.control, m.status = e.regions.fetch(ep.ptag, t, &m.layout)
	}
	if m.status == 0 && m.total > ep.maxTransfer {
		m.status = descriptors.StatusLengthError
	}
	if m.status == 0 && !m.checked {
		m.status = e.regions.check(&m.layout, ep.ptag, false)
	}
}
