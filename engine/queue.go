package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// workQueue is one side of an endpoint: a ring of tokens in host memory. All
// counts are free-running.
type workQueue struct {
	iova      uint64
	mask      uint32
	producer  uint32 // posted by the host, as far as its doorbell says
	fetched   uint32 // tokens that we have begun to work on
	completed uint32
	receive   bool
	vector    uint16
	armed     bool
	armWord   uint32
	cq        *completionQueue
	tokens    []descriptors.Token // the ring, for epoch
	epoch     uint64
}

// depth is the number of tokens the ring holds.
func (q *workQueue) depth() uint32 { return q.mask + 1 }

// posted is the number of tokens that wait to be fetched.
func (q *workQueue) posted() uint32 { return q.producer - q.fetched }

// token reads token number i of the ring, once: the host may be writing. A token
// that the bus refuses to give has a status, and names no descriptor.
func (m *regions) token(q *workQueue, i uint32) (descriptors.Token, descriptors.Status) {
	if q.epoch != m.epoch {
		size := uint64(q.depth()) * descriptors.TokenSize
		w, err := m.bus.Window(q.iova, size, false)
		if err != nil || uint64(len(w)) < size {
			return m.tokenApart(q, i)
		}
		q.tokens, q.epoch = descriptors.TokensAt(w), m.epoch
	}
	return q.tokens[i&q.mask], 0
}

// tokenApart is token for a ring that is not contiguous for us.
func (m *regions) tokenApart(q *workQueue, i uint32) (descriptors.Token, descriptors.Status) {
	w := m.whole(q.iova+uint64(i&q.mask)*descriptors.TokenSize, descriptors.TokenSize, false)
	if t := descriptors.TokensAt(w); t != nil {
		return t[0], 0
	}
	return descriptors.Token{}, descriptors.StatusProtectionError
}

// fetch copies the descriptor that t names, of an endpoint with protection tag tag,
// into l. A zero status means that
// the descriptor is sound; control is valid then.
func (m *regions) fetch(tag uint32, t descriptors.Token, l *layout) (c control, st descriptors.Status) {
	l.segments, l.total, l.at, l.base, l.checked = l.segments[:0], 0, 0, 0, false
	if t.Address%descriptors.DescriptorAlign != 0 || t.Flags != 0 {
		return c, descriptors.StatusFormatError
	}
	// The status word will be written, so the region must allow writing.
	r, off := m.reach(t.Handle, tag, t.Address, descriptors.ControlSegmentSize, true)
	if r == nil {
		m.count(descriptors.CounterProtectionErrors, 1)
		return c, descriptors.StatusProtectionError
	}
	seg := descriptors.ControlAt(m.window(r, off, descriptors.ControlSegmentSize, true))
	if seg == nil {
		return c, descriptors.StatusProtectionError
	}
	c = control{bits: seg.Control, immediate: seg.Immediate, length: seg.Length}
	count := uint64(seg.SegCount)
	if seg.Reserved != 0 || c.bits&descriptors.ControlReserved != 0 || c.bits.Op() != descriptors.OpSend || count > uint64(m.limits.Segments) {
		return c, descriptors.StatusFormatError
	}
	n := count * descriptors.DataSegmentSize
	if c.bits&descriptors.ControlInline != 0 {
		return c, m.fetchInline(tag, t, l, &c, n)
	}
	if r, off = m.reach(t.Handle, tag, t.Address+descriptors.ControlSegmentSize, n, false); r == nil {
		m.count(descriptors.CounterProtectionErrors, 1)
		return c, descriptors.StatusProtectionError
	}
	var total uint64
	for n > 0 {
		w := m.window(r, off, n, false)
		segs := descriptors.DataSegmentsAt(w)
		if segs == nil {
			return c, descriptors.StatusProtectionError
		}
		for i := range segs {
			s := segment{segs[i].Address, segs[i].Handle, segs[i].Length}
			total += uint64(s.length)
			l.segments = append(l.segments, s)
		}
		moved := uint64(len(segs)) * descriptors.DataSegmentSize
		off, n = off+moved, n-moved
	}
	if total != uint64(c.length) || total > uint64(m.limits.Transfer) {
		return c, descriptors.StatusLengthError
	}
	l.total = uint32(total)
	return c, 0
}

// fetchInline is the rest of fetch for a descriptor with n bytes of room for inline
// data: that is as one segment, in the descriptor's own region.
func (m *regions) fetchInline(tag uint32, t descriptors.Token, l *layout, c *control, n uint64) descriptors.Status {
	if (uint64(c.length)+descriptors.DataSegmentSize-1)&^(descriptors.DataSegmentSize-1) != n {
		return descriptors.StatusFormatError
	}
	s := segment{t.Address + descriptors.ControlSegmentSize, t.Handle, c.length}
	if r, _ := m.reach(s.handle, tag, s.address, uint64(s.length), false); r == nil {
		m.count(descriptors.CounterProtectionErrors, 1)
		return descriptors.StatusProtectionError
	}
	l.segments, l.total, l.checked = append(l.segments, s), c.length, true
	return 0
}

// control is what we keep of a control segment.
type control struct {
	bits      descriptors.Control
	immediate uint32
	length    uint32
}
