package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// lane sends the next message that the host has just posted, if all is as it mostly is. The
// connection is over a wire that loses nothing, and no other endpoint has something to send. The
// message is a send of one frame, from one piece of memory. Otherwise lane returns false, and
// nothing has happened: the message takes the way from transmit on, which ends the same.
func (t *transmitter) lane(ep *endpoint) bool {
	r, q := ep.rel, &ep.send
	if r == nil || r.wire == 0 || !ep.plain || q.pushed != nil || q.posted() == 0 ||
		t.events&(onReady|suspended) != 0 || t.hooks|t.waiting != 0 || t.held || t.timed || t.checksum ||
		r.broken || r.fetched || r.next-r.head >= uint32(len(r.messages)) ||
		r.head != r.next && !r.message(r.next-1).allCut || r.serving != nil && r.serving.due() {
		return false
	}
	token, st := t.regions.token(q, q.fetched)
	if st != 0 || token.Flags != 0 || token.Address%descriptors.DescriptorAlign != 0 {
		return false
	}
	// Each message has a data segment at least, or as many bytes in its place.
	host := t.regions.piece(token.Handle, ep.ptag, token.Address, descriptors.ControlSegmentSize+descriptors.DataSegmentSize, true)
	seg := descriptors.ControlAt(host)
	if seg == nil || seg.Front != 0 {
		return false
	}
	bits, immediate, n, count := seg.Control, seg.Immediate, seg.Length, uint32(seg.SegCount)
	const sound = descriptors.ControlInline | descriptors.ControlImmediate
	if bits&^sound != descriptors.OpSend || n == 0 || n > min(ep.maxTransfer, ep.maxPayload) || n < ep.shortest ||
		int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	from := segment{token.Address + descriptors.ControlSegmentSize, token.Handle, n}
	if bits&descriptors.ControlInline == 0 {
		at := descriptors.DataSegmentAt(host[descriptors.ControlSegmentSize:])
		if from = (segment{at.Address, at.Handle, at.Length}); from.length != n || count != 1 {
			return false
		}
	} else if (n+descriptors.DataSegmentSize-1)/descriptors.DataSegmentSize != count || count > uint32(t.limits.Segments) {
		return false
	}
	payload := t.regions.piece(from.handle, ep.ptag, from.address, uint64(n), false)
	if payload == nil {
		return false
	}
	credit := r.credit()
	buf, how := []byte(nil), formWhole
	if r.shorts {
		buf, how = t.laneRoom(ep, payload, credit, bits)
	} else if n <= min(t.oneBurst, lendFrom-1) {
		buf = t.reserve(descriptors.HeaderSize + int(n))
	}
	if buf == nil || !t.dma.movers[Transmit].Whole(int(n), 0) {
		return false
	}
	q.fetched++
	m := r.message(r.next)
	l := &m.layout
	l.token, l.control, l.status, l.total = token, control{bits, immediate}, 0, n
	l.segments, l.at, l.base, l.eager, l.front, l.described, l.memory = append(l.segments[:0], from), 0, 0, 0, 0, nil, payload
	l.descriptor, l.stamp = seg, t.regions.stamp
	m.number, m.cut, m.begun, m.lastPSN, m.frames, m.awaits = r.numbered, 0, true, 0, descriptors.FrameData, 0
	r.stalled = false
	r.next++
	r.numbered++
	if how == formWhole {
		head(buf, ep, m, r.nxt, 0, n, 0)
		copy(buf[descriptors.HeaderSize:], payload)
		t.handOver(int(n))
	} else {
		t.sendShort(ep, buf, payload, how, credit)
	}
	ep.kind.sent(ep, m, r.nxt, 0, n, credit, false)
	return true
}

// piece is the n bytes that reach finds, if they are in one piece of ordinary memory of
// which that is known; else nil.
func (m *regions) piece(handle, tag uint32, address, n uint64, write bool) []byte {
	r, off := m.reach(handle, tag, address, n, write)
	if r == nil || r.eager != nil || r.device || r.epoch != m.epoch || r.whole == nil {
		return nil
	}
	return r.whole[off : off+n]
}
