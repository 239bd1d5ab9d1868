package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// workQueue is one side of an endpoint: a ring of tokens in host memory. All
// counts are free-running.
type workQueue struct {
	iova      uint64
	mask      uint32 // tokens that the ring holds, less one
	producer  uint32 // posted by the host, as far as its doorbell says
	fetched   uint32 // tokens that we have begun to work on
	completed uint32
	receive   bool
	vector    uint16
	armed     bool
	armWord   uint32
	cq        *completionQueue
	tokens    []descriptors.Token // the ring, for epoch; the engine's own if iova is zero
	epoch     uint64
	pushed    *eager // the ring in device memory, nil without EndpointEager

	// Where the descriptor, and the payload, of a token lay that was fetched last.
	described, paid near

	// Of a VI that shares a receive queue: where the tokens in tokens come from.
	source *endpoint
	// named says that the host has named each token, in its Flags.
	named bool
}

// posted is the number of tokens that wait to be fetched.
func (q *workQueue) posted() uint32 { return q.producer - q.fetched }

// token reads token number i of the ring, once: the host may be writing. A token
// that the bus refuses to give has a status, and names no descriptor.
func (m *regions) token(q *workQueue, i uint32) (descriptors.Token, descriptors.Status) {
	if q.pushed != nil {
		if t, ok := m.pushedToken(q.pushed, i&q.mask); ok {
			return t, 0
		}
	}
	if q.epoch == m.epoch || m.mapRing(q) {
		return q.tokens[i&q.mask], 0
	}
	t := descriptors.TokensAt(m.whole(q.iova+uint64(i&q.mask)*descriptors.TokenSize, descriptors.TokenSize, false))
	if t == nil {
		return descriptors.Token{}, descriptors.StatusProtectionError
	}
	return t[0], 0
}

// mapRing looks up the memory of a queue's ring. It returns false if that is not
// contiguous for us.
func (m *regions) mapRing(q *workQueue) bool {
	if q.iova == 0 { // the tokens are ours
		q.epoch = m.epoch
		return true
	}
	size := uint64(q.mask+1) * descriptors.TokenSize
	w, err := m.bus.Window(q.iova, size, false)
	if err != nil || uint64(len(w)) < size {
		return false
	}
	q.tokens, q.epoch = descriptors.TokensAt(w), m.epoch
	return true
}

// fetch takes the next token of a queue, and copies the descriptor that it names into l. What most
// tokens name is a send or a receive of one piece of memory; fetchAny begins anew with the others.
func (m *regions) fetch(ep *endpoint, q *workQueue, l *layout) {
	if q.pushed != nil || q.epoch != m.epoch {
		m.fetchAny(ep, q, l)
		return
	}
	t := q.tokens[q.fetched&q.mask] // once: the host may be writing
	// Each message has a data segment at least, or as many bytes in its place.
	host := m.near(&q.described, t.Handle, ep.ptag, t.Address, descriptors.ControlSegmentSize+descriptors.DataSegmentSize, true)
	seg := descriptors.ControlAt(host)
	if seg == nil || t.Address%descriptors.DescriptorAlign != 0 || t.Flags != 0 && !q.named || seg.Front != 0 {
		m.fetchAny(ep, q, l)
		return
	}
	bits, immediate, n, count := seg.Control, seg.Immediate, seg.Length, uint32(seg.SegCount)
	from, at, limit := segment{t.Address + descriptors.ControlSegmentSize, t.Handle, n}, &q.described, ep.maxTransfer
	inline := bits&^descriptors.ControlImmediate == descriptors.OpSend|descriptors.ControlInline && !q.receive
	if !inline {
		data := descriptors.DataSegmentAt(host[descriptors.ControlSegmentSize:])
		if from, at = (segment{data.Address, data.Handle, data.Length}), &q.paid; q.receive {
			limit = m.limits.Transfer
		}
	}
	memory := m.near(at, from.handle, ep.ptag, from.address, uint64(n), q.receive)
	if memory == nil || n > limit || inline && ((n+descriptors.DataSegmentSize-1)/descriptors.DataSegmentSize != count || count > uint32(m.limits.Segments)) ||
		!inline && (bits&^descriptors.ControlImmediate != descriptors.OpSend || from.length != n || count != 1) {
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
func (m *regions) fetchAny(ep *endpoint, q *workQueue, l *layout) {
	l.segments, l.total, l.at, l.base, l.descriptor, l.control = l.segments[:0], 0, 0, 0, nil, control{}
	l.eager, l.front, l.described = 0, 0, nil
	l.token, l.status = m.token(q, q.fetched)
	q.fetched++
	if l.token.Flags != 0 && !q.named {
		l.status |= descriptors.StatusFormatError
	}
	if l.status == 0 {
		l.status = m.copyDescriptor(l, ep.ptag)
	}
	inline, op := l.control.bits&descriptors.ControlInline != 0, l.control.bits.Op()
	switch {
	case l.status != 0:
	case q.receive && (inline || op != descriptors.OpSend): // a receive is neither
		l.status = descriptors.StatusFormatError
	case !q.receive && l.total > ep.maxTransfer:
		l.status = descriptors.StatusLengthError
	case !inline:
		l.status = m.check(l, ep.ptag, q.receive || op == descriptors.OpRDMARead)
	}
	if op != descriptors.OpSend {
		if q.receive {
			l.control.bits &^= descriptors.ControlOpMask // it is a receive all the same
		} else if l.status == 0 {
			l.status = ep.allows(op)
		}
	}
}

// copyDescriptor copies the descriptor that l.token names, of an endpoint with protection
// tag tag. With status zero it is sound, and so is inline data.
func (m *regions) copyDescriptor(l *layout, tag uint32) descriptors.Status {
	t := l.token
	if t.Address%descriptors.DescriptorAlign != 0 {
		return descriptors.StatusFormatError
	}
	// The status word will be written, so the region must allow writing.
	r, off := m.reach(t.Handle, tag, t.Address, descriptors.ControlSegmentSize, true)
	if r == nil {
		m.count(descriptors.CounterProtectionErrors, 1)
		return descriptors.StatusProtectionError
	}
	host := descriptors.ControlAt(m.window(r, off, descriptors.ControlSegmentSize, true))
	seg := host
	if host != nil && r.eager != nil {
		seg = m.control(l, r, off)
	}
	if seg == nil {
		return descriptors.StatusProtectionError
	}
	l.descriptor, l.stamp = host, m.stamp
	l.control = control{bits: seg.Control, immediate: seg.Immediate}
	bits, length, count := l.control.bits, seg.Length, uint64(seg.SegCount)
	address := t.Address + descriptors.ControlSegmentSize
	if seg.Front != 0 || bits&descriptors.ControlReserved != 0 {
		return descriptors.StatusFormatError
	}
	var target segment
	if bits.Op() != descriptors.OpSend {
		if st := m.copyTarget(l, count, tag); st != 0 {
			return st
		}
		target = *l.target()
		address, count = address+descriptors.AddressSegmentSize, count-1
	}
	if count > uint64(m.limits.Segments) {
		return descriptors.StatusFormatError
	}
	n := count * descriptors.DataSegmentSize
	if bits&descriptors.ControlInline != 0 {
		// The data is as one segment, in the descriptor's own region.
		if (uint64(length)+descriptors.DataSegmentSize-1)&^(descriptors.DataSegmentSize-1) != n {
			return descriptors.StatusFormatError
		}
		l.segments = append(l.segments, segment{address, t.Handle, length})
		l.total = length
		return m.check(l, tag, false)
	}
	var total uint64
	for n > 0 {
		segs := descriptors.DataSegmentsAt(m.at(t.Handle, tag, address, n, false))
		if segs == nil {
			return descriptors.StatusProtectionError
		}
		for i := range segs {
			s := segment{segs[i].Address, segs[i].Handle, segs[i].Length}
			total += uint64(s.length)
			l.segments = append(l.segments, s)
		}
		moved := uint64(len(segs)) * descriptors.DataSegmentSize
		address, n = address+moved, n-moved
	}
	if total != uint64(length) || total > uint64(m.limits.Transfer) {
		return descriptors.StatusLengthError
	}
	l.total = length
	if bits.Op() != descriptors.OpSend {
		l.segments = append(l.segments, target)[:len(l.segments)]
	}
	return 0
}

// operations is what completed descriptors say of their operation, by that; the last one
// there is not.
var operations = [descriptors.ControlOpMask + 1]descriptors.Status{descriptors.OpSend: descriptors.StatusOpSend,
	descriptors.OpRDMAWrite: descriptors.StatusOpRDMAWrite, descriptors.OpRDMARead: descriptors.StatusOpRDMARead}

// operation is that of the descriptor that a token names, without a look at the rest of it.
func (m *regions) operation(t descriptors.Token, tag uint32) descriptors.Control {
	r, off := m.reach(t.Handle, tag, t.Address, descriptors.ControlSegmentSize, false)
	if r == nil {
		return descriptors.OpSend
	}
	seg := descriptors.ControlAt(m.window(r, off, descriptors.ControlSegmentSize, false))
	if seg == nil {
		return descriptors.OpSend
	}
	return seg.Control.Op()
}

// copyTarget copies the address segment of an RDMA descriptor with count segments in all.
func (m *regions) copyTarget(l *layout, count uint64, tag uint32) descriptors.Status {
	bits := l.control.bits
	switch {
	case bits.Op() == descriptors.ControlOpMask:
		l.control.bits &^= descriptors.ControlOpMask
		return descriptors.StatusFormatError
	case count == 0, bits&descriptors.ControlInline != 0,
		bits.Op() == descriptors.OpRDMARead && bits&descriptors.ControlImmediate != 0:
		return descriptors.StatusFormatError
	}
	s := descriptors.AddressSegmentAt(m.at(l.token.Handle, tag, l.token.Address+descriptors.ControlSegmentSize, descriptors.AddressSegmentSize, false))
	if s == nil {
		return descriptors.StatusProtectionError
	}
	if s.Reserved != 0 {
		return descriptors.StatusFormatError
	}
	l.segments = append(l.segments, segment{address: s.Address, handle: s.Handle})[:0]
	return 0
}

// target is the memory that the address segment of an RDMA descriptor names. It stands
// behind the data segments, where it makes the layouts of sends no larger.
func (l *layout) target() *segment { return &l.segments[:len(l.segments)+1][len(l.segments)] }
