package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// descriptors fetches the messages of VIs from host memory.
type descriptors struct{ *core.Regions }

// fetch takes the next token of a queue, and copies the descriptor that it names into l. What most
// tokens name is a send or a receive of one piece of memory; fetchAny begins anew with the others.
func (m descriptors) fetch(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) {
	if q.Pushed != nil || q.Epoch != m.Epoch {
		m.fetchAny(ep, q, l)
		return
	}
	t := q.Tokens[q.Fetched&q.Mask] // once: the host may be writing
	// Each message has a data segment at least, or as many bytes in its place.
	host := m.Near(&q.Described, t.Handle, ep.Ptag, t.Address, datasheet.ControlSegmentSize+datasheet.DataSegmentSize, true)
	seg := datasheet.ControlAt(host)
	if seg == nil || t.Address%datasheet.DescriptorAlign != 0 || t.Flags != 0 && !q.Named || seg.Front != 0 {
		m.fetchAny(ep, q, l)
		return
	}
	bits, immediate, n, count := seg.Control, seg.Immediate, seg.Length, uint32(seg.SegCount)
	from, at, limit := core.Segment{Address: t.Address + datasheet.ControlSegmentSize, Handle: t.Handle, Length: n}, &q.Described, ep.MaxTransfer
	inline := bits&^datasheet.ControlImmediate == datasheet.OpSend|datasheet.ControlInline && !q.Receive
	if !inline {
		data := datasheet.DataSegmentAt(host[datasheet.ControlSegmentSize:])
		if from, at = (core.Segment{Address: data.Address, Handle: data.Handle, Length: data.Length}), &q.Paid; q.Receive {
			limit = m.Limits.Transfer
		}
	}
	memory := m.Near(at, from.Handle, ep.Ptag, from.Address, uint64(n), q.Receive)
	if memory == nil || n > limit || inline && ((n+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize != count || count > uint32(m.Limits.Segments)) ||
		!inline && (bits&^datasheet.ControlImmediate != datasheet.OpSend || from.Length != n || count != 1) {
		m.fetchAny(ep, q, l)
		return
	}
	q.Fetched++
	l.Token, l.Control, l.Status, l.Total = t, core.Control{Bits: bits, Immediate: immediate}, 0, n
	l.Segments, l.At, l.Base, l.Eager, l.Front, l.Described, l.Pushed = append(l.Segments[:0], from), 0, 0, 0, 0, nil, nil
	l.Memory, l.Descriptor, l.Stamp = memory, seg, m.Stamp
}

// fetchAny is fetch for any token. What is wrong with it, with the descriptor or with a segment
// shows in l.status.
func (m descriptors) fetchAny(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) {
	l.Segments, l.Total, l.At, l.Base, l.Descriptor, l.Control = l.Segments[:0], 0, 0, 0, nil, core.Control{}
	l.Eager, l.Front, l.Described = 0, 0, nil
	l.Token, l.Status = m.Token(q, q.Fetched)
	q.Fetched++
	if l.Token.Flags != 0 && !q.Named {
		l.Status |= datasheet.StatusFormatError
	}
	if l.Status == 0 {
		l.Status = m.copyDescriptor(l, ep.Ptag)
	}
	inline, op := l.Control.Bits&datasheet.ControlInline != 0, l.Control.Bits.Op()
	switch {
	case l.Status != 0:
	case q.Receive && (inline || op != datasheet.OpSend): // a receive is neither
		l.Status = datasheet.StatusFormatError
	case !q.Receive && l.Total > ep.MaxTransfer:
		l.Status = datasheet.StatusLengthError
	case !inline:
		l.Status = m.Check(l, ep.Ptag, q.Receive || op == datasheet.OpRDMARead)
	}
	if op != datasheet.OpSend {
		if q.Receive {
			l.Control.Bits &^= datasheet.ControlOpMask // it is a receive all the same
		} else if l.Status == 0 {
			l.Status = allows(ep, op)
		}
	}
}

// copyDescriptor copies the descriptor that l.token names, of an endpoint with protection
// tag tag. With status zero it is sound, and so is inline data.
func (m descriptors) copyDescriptor(l *core.Layout, tag uint32) datasheet.Status {
	t := l.Token
	if t.Address%datasheet.DescriptorAlign != 0 {
		return datasheet.StatusFormatError
	}
	// The status word will be written, so the region must allow writing.
	r, off := m.Reach(t.Handle, tag, t.Address, datasheet.ControlSegmentSize, true)
	if r == nil {
		m.Count(datasheet.CounterProtectionErrors, 1)
		return datasheet.StatusProtectionError
	}
	host := datasheet.ControlAt(m.Window(r, off, datasheet.ControlSegmentSize, true))
	seg := host
	if host != nil && r.Eager != nil {
		seg = m.Control(l, r, off)
	}
	if seg == nil {
		return datasheet.StatusProtectionError
	}
	l.Descriptor, l.Stamp = host, m.Stamp
	l.Control = core.Control{Bits: seg.Control, Immediate: seg.Immediate}
	bits, length, count := l.Control.Bits, seg.Length, uint64(seg.SegCount)
	address := t.Address + datasheet.ControlSegmentSize
	if seg.Front != 0 || bits&datasheet.ControlReserved != 0 {
		return datasheet.StatusFormatError
	}
	var target core.Segment
	if bits.Op() != datasheet.OpSend {
		if st := m.copyTarget(l, count, tag); st != 0 {
			return st
		}
		target = *l.Target()
		address, count = address+datasheet.AddressSegmentSize, count-1
	}
	if count > uint64(m.Limits.Segments) {
		return datasheet.StatusFormatError
	}
	n := count * datasheet.DataSegmentSize
	if bits&datasheet.ControlInline != 0 {
		// The data is as one segment, in the descriptor's own region.
		if (uint64(length)+datasheet.DataSegmentSize-1)&^(datasheet.DataSegmentSize-1) != n {
			return datasheet.StatusFormatError
		}
		l.Segments = append(l.Segments, core.Segment{Address: address, Handle: t.Handle, Length: length})
		l.Total = length
		return m.Check(l, tag, false)
	}
	var total uint64
	for n > 0 {
		segs := datasheet.DataSegmentsAt(m.At(t.Handle, tag, address, n, false))
		if segs == nil {
			return datasheet.StatusProtectionError
		}
		for i := range segs {
			s := core.Segment{Address: segs[i].Address, Handle: segs[i].Handle, Length: segs[i].Length}
			total += uint64(s.Length)
			l.Segments = append(l.Segments, s)
		}
		moved := uint64(len(segs)) * datasheet.DataSegmentSize
		address, n = address+moved, n-moved
	}
	if total != uint64(length) || total > uint64(m.Limits.Transfer) {
		return datasheet.StatusLengthError
	}
	l.Total = length
	if bits.Op() != datasheet.OpSend {
		l.Segments = append(l.Segments, target)[:len(l.Segments)]
	}
	return 0
}

// copyTarget copies the address segment of an RDMA descriptor with count segments in all.
func (m descriptors) copyTarget(l *core.Layout, count uint64, tag uint32) datasheet.Status {
	bits := l.Control.Bits
	switch {
	case bits.Op() == datasheet.ControlOpMask:
		l.Control.Bits &^= datasheet.ControlOpMask
		return datasheet.StatusFormatError
	case count == 0, bits&datasheet.ControlInline != 0,
		bits.Op() == datasheet.OpRDMARead && bits&datasheet.ControlImmediate != 0:
		return datasheet.StatusFormatError
	}
	s := datasheet.AddressSegmentAt(m.At(l.Token.Handle, tag, l.Token.Address+datasheet.ControlSegmentSize, datasheet.AddressSegmentSize, false))
	if s == nil {
		return datasheet.StatusProtectionError
	}
	if s.Reserved != 0 {
		return datasheet.StatusFormatError
	}
	l.Segments = append(l.Segments, core.Segment{Address: s.Address, Handle: s.Handle})[:0]
	return 0
}

// allows says what is wrong with an RDMA operation of the endpoint that is sound.
func allows(ep *core.Endpoint, op datasheet.Control) datasheet.Status {
	right := datasheet.AccessRDMAWrite
	if op == datasheet.OpRDMARead {
		right = datasheet.AccessRDMARead
	}
	switch {
	case !ep.Connects, right == datasheet.AccessRDMARead && ep.Flow == nil:
		return datasheet.StatusFormatError
	case ep.Allowed&right == 0:
		return datasheet.StatusRDMAProtection
	}
	return 0
}
