package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// descriptors fetches the messages of VIs from host memory.
type descriptors struct{ *regions }

// fetch takes the next token of a queue, and copies the descriptor that it names into l. What most
// tokens name is a send or a receive of one piece of memory; fetchAny begins anew with the others.
func (m descriptors) fetch(ep *endpoint, q *workQueue, l *layout) {
	if q.pushed != nil || q.epoch != m.epoch {
		m.fetchAny(ep, q, l)
		return
	}
	t := q.tokens[q.fetched&q.mask] // once: the host may be writing
	// Each message has a data segment at least, or as many bytes in its place.
	host := m.near(&q.described, t.Handle, ep.ptag, t.Address, datasheet.ControlSegmentSize+datasheet.DataSegmentSize, true)
	seg := datasheet.ControlAt(host)
	if seg == nil || t.Address%datasheet.DescriptorAlign != 0 || t.Flags != 0 && !q.named || seg.Front != 0 {
		m.fetchAny(ep, q, l)
		return
	}
	bits, immediate, n, count := seg.Control, seg.Immediate, seg.Length, uint32(seg.SegCount)
	from, at, limit := segment{t.Address + datasheet.ControlSegmentSize, t.Handle, n}, &q.described, ep.maxTransfer
	inline := bits&^datasheet.ControlImmediate == datasheet.OpSend|datasheet.ControlInline && !q.receive
	if !inline {
		data := datasheet.DataSegmentAt(host[datasheet.ControlSegmentSize:])
		if from, at = (segment{data.Address, data.Handle, data.Length}), &q.paid; q.receive {
			limit = m.limits.Transfer
		}
	}
	memory := m.near(at, from.handle, ep.ptag, from.address, uint64(n), q.receive)
	if memory == nil || n > limit || inline && ((n+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize != count || count > uint32(m.limits.Segments)) ||
		!inline && (bits&^datasheet.ControlImmediate != datasheet.OpSend || from.length != n || count != 1) {
		m.fetchAny(ep, q, l)
		return
	}
	q.fetched++
	l.token, l.control, l.status, l.total = t, control{bits, immediate}, 0, n
	l.segments, l.at, l.base, l.eager, l.front, l.described, l.pushed = append(l.segments[:0], from), 0, 0, 0, 0, nil, nil
	l.memory, l.descriptor, l.stamp = memory, seg, m.stamp
}

// fetchAny is fetch for any token. What is wrong with it, with the descriptor or with a segment
// shows in l.status.
func (m descriptors) fetchAny(ep *endpoint, q *workQueue, l *layout) {
	l.segments, l.total, l.at, l.base, l.descriptor, l.control = l.segments[:0], 0, 0, 0, nil, control{}
	l.eager, l.front, l.described = 0, 0, nil
	l.token, l.status = m.token(q, q.fetched)
	q.fetched++
	if l.token.Flags != 0 && !q.named {
		l.status |= datasheet.StatusFormatError
	}
	if l.status == 0 {
		l.status = m.copyDescriptor(l, ep.ptag)
	}
	inline, op := l.control.bits&datasheet.ControlInline != 0, l.control.bits.Op()
	switch {
	case l.status != 0:
	case q.receive && (inline || op != datasheet.OpSend): // a receive is neither
		l.status = datasheet.StatusFormatError
	case !q.receive && l.total > ep.maxTransfer:
		l.status = datasheet.StatusLengthError
	case !inline:
		l.status = m.check(l, ep.ptag, q.receive || op == datasheet.OpRDMARead)
	}
	if op != datasheet.OpSend {
		if q.receive {
			l.control.bits &^= datasheet.ControlOpMask // it is a receive all the same
		} else if l.status == 0 {
			l.status = allows(ep, op)
		}
	}
}

// copyDescriptor copies the descriptor that l.token names, of an endpoint with protection
// tag tag. With status zero it is sound, and so is inline data.
func (m descriptors) copyDescriptor(l *layout, tag uint32) datasheet.Status {
	t := l.token
	if t.Address%datasheet.DescriptorAlign != 0 {
		return datasheet.StatusFormatError
	}
	// The status word will be written, so the region must allow writing.
	r, off := m.reach(t.Handle, tag, t.Address, datasheet.ControlSegmentSize, true)
	if r == nil {
		m.count(datasheet.CounterProtectionErrors, 1)
		return datasheet.StatusProtectionError
	}
	host := datasheet.ControlAt(m.window(r, off, datasheet.ControlSegmentSize, true))
	seg := host
	if host != nil && r.eager != nil {
		seg = m.control(l, r, off)
	}
	if seg == nil {
		return datasheet.StatusProtectionError
	}
	l.descriptor, l.stamp = host, m.stamp
	l.control = control{bits: seg.Control, immediate: seg.Immediate}
	bits, length, count := l.control.bits, seg.Length, uint64(seg.SegCount)
	address := t.Address + datasheet.ControlSegmentSize
	if seg.Front != 0 || bits&datasheet.ControlReserved != 0 {
		return datasheet.StatusFormatError
	}
	var target segment
	if bits.Op() != datasheet.OpSend {
		if st := m.copyTarget(l, count, tag); st != 0 {
			return st
		}
		target = *l.target()
		address, count = address+datasheet.AddressSegmentSize, count-1
	}
	if count > uint64(m.limits.Segments) {
		return datasheet.StatusFormatError
	}
	n := count * datasheet.DataSegmentSize
	if bits&datasheet.ControlInline != 0 {
		// The data is as one segment, in the descriptor's own region.
		if (uint64(length)+datasheet.DataSegmentSize-1)&^(datasheet.DataSegmentSize-1) != n {
			return datasheet.StatusFormatError
		}
		l.segments = append(l.segments, segment{address, t.Handle, length})
		l.total = length
		return m.check(l, tag, false)
	}
	var total uint64
	for n > 0 {
		segs := datasheet.DataSegmentsAt(m.at(t.Handle, tag, address, n, false))
		if segs == nil {
			return datasheet.StatusProtectionError
		}
		for i := range segs {
			s := segment{segs[i].Address, segs[i].Handle, segs[i].Length}
			total += uint64(s.length)
			l.segments = append(l.segments, s)
		}
		moved := uint64(len(segs)) * datasheet.DataSegmentSize
		address, n = address+moved, n-moved
	}
	if total != uint64(length) || total > uint64(m.limits.Transfer) {
		return datasheet.StatusLengthError
	}
	l.total = length
	if bits.Op() != datasheet.OpSend {
		l.segments = append(l.segments, target)[:len(l.segments)]
	}
	return 0
}

// copyTarget copies the address segment of an RDMA descriptor with count segments in all.
func (m descriptors) copyTarget(l *layout, count uint64, tag uint32) datasheet.Status {
	bits := l.control.bits
	switch {
	case bits.Op() == datasheet.ControlOpMask:
		l.control.bits &^= datasheet.ControlOpMask
		return datasheet.StatusFormatError
	case count == 0, bits&datasheet.ControlInline != 0,
		bits.Op() == datasheet.OpRDMARead && bits&datasheet.ControlImmediate != 0:
		return datasheet.StatusFormatError
	}
	s := datasheet.AddressSegmentAt(m.at(l.token.Handle, tag, l.token.Address+datasheet.ControlSegmentSize, datasheet.AddressSegmentSize, false))
	if s == nil {
		return datasheet.StatusProtectionError
	}
	if s.Reserved != 0 {
		return datasheet.StatusFormatError
	}
	l.segments = append(l.segments, segment{address: s.Address, handle: s.Handle})[:0]
	return 0
}

// allows says what is wrong with an RDMA operation of the endpoint that is sound.
func allows(ep *endpoint, op datasheet.Control) datasheet.Status {
	right := datasheet.AccessRDMAWrite
	if op == datasheet.OpRDMARead {
		right = datasheet.AccessRDMARead
	}
	switch {
	case !ep.connects, right == datasheet.AccessRDMARead && ep.flow == nil:
		return datasheet.StatusFormatError
	case ep.allowed&right == 0:
		return datasheet.StatusRDMAProtection
	}
	return 0
}
