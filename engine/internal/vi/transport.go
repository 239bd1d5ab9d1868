// Package vi has the kinds whose messages cross in data frames: VIs, receive queues that VIs
// share, and raw frames. Other kinds with such messages use its Transport.
package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Transport carries messages in data frames: those of VIs, and of other kinds whose queues and
// messages look otherwise.
type Transport struct {
	*core.Core
	wires ways
}

// way is a wire that loses nothing: that of the port, or the one to a peer.
type way struct {
	core.Lossless
	seen   uint32 // its number at the last look
	taken  uint32 // of the peer, at the last look of a round
	looked uint32 // of the peer, at the last look of a completion queue
	users  int    // connections over it
}

// ways are those over which there are connections.
type ways struct {
	all    []*way
	flying []*reliable // connections with messages under way
	heard  bool        // the peer's frames have acknowledged some of them
	moved  bool        // a completion queue has seen that a peer has taken some of them
}

func (k *Transport) create(ep *core.Endpoint, b *datasheet.CreateEndpointBody) (reply datasheet.EndpointCreated, why core.Refusal) {
	if ep.Options&datasheet.EndpointShares != 0 {
		// The receive side holds as many of the other's receives as messages can be in work.
		from := k.All[b.RecvIOVA]
		ep.Recv = core.WorkQueue{Source: from, Named: true, Receive: true, CQ: from.Recv.CQ, Vector: datasheet.NoVector,
			Mask: core.WindowFrames - 1, Tokens: make([]datasheet.Token, core.WindowFrames)}
	}
	if ep.Options&datasheet.EndpointEager != 0 {
		var ok bool
		if reply, ok = k.Regions.PushRings(ep); !ok {
			return datasheet.EndpointCreated{}, core.Refusal{Result: datasheet.ResultResource, Field: core.FieldOptions}
		}
	}
	return reply, why
}

func (k *Transport) check(b *datasheet.CreateEndpointBody) core.Refusal {
	switch {
	case b.Options&^(datasheet.EndpointBreaks|datasheet.EndpointShares|datasheet.EndpointEager) != 0,
		b.Options&datasheet.EndpointBreaks != 0 && b.Reliability == datasheet.Unreliable:
		return core.Refusal{Result: datasheet.ResultInvalidParameter, Field: core.FieldOptions}
	case b.Options&datasheet.EndpointEager != 0 && k.Regions.SRAM.Bytes == nil:
		return core.Refusal{Result: datasheet.ResultNotSupported, Field: core.FieldOptions}
	}
	return core.Refusal{}
}

// begin starts the message that the endpoint's next token names. It reports whether that is a sound send
// from one piece of memory.
func (k *Transport) begin(ep *core.Endpoint, m *core.Sending, number uint32) (usual bool) {
	m.Number, m.Cut, m.Begun, m.AllCut, m.LastPSN = number, 0, true, false, 0
	m.Frames, m.Awaits = datasheet.FrameData, 0
	usual = ep.Kind.Format.Fetch(ep, &ep.Send, &m.Layout)
	if !usual && m.Control.Bits&core.UnlikeSends != 0 && m.Status == 0 {
		m.BeginRDMA()
	}
	return usual
}

// takeReceive fetches the next receive descriptor into in, unless none is
// posted. A bad one shows in in.status.
func (k *Transport) takeReceive(ep *core.Endpoint, in *core.Receipt) bool {
	q := &ep.Recv
	if q.Posted() == 0 {
		// The host may have rung since this round looked: what it had posted
		// before the message was sent must be there for it.
		if k.Bells.TakePage(ep.ID); q.Posted() == 0 && !k.share(q) {
			return false
		}
	}
	ep.Kind.Format.Fetch(ep, q, &in.Layout)
	return true
}

// tokens is the format of queues with tokens, which name descriptors in host memory.
type tokens struct{ *core.Core }

// Fetch implements core.Format.
func (k tokens) Fetch(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) bool {
	return descriptors{&k.Regions}.fetch(ep, q, l)
}

// Complete implements core.Format.
func (k tokens) Complete(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout, length, immediate uint32, st datasheet.Status) {
	k.CQs.Complete(ep, q, l, length, immediate, st)
}

// Destination implements core.Format. A message goes to the memory of its receive descriptor, or where an entry of the
// payload table says, which a program has chosen.
func (k tokens) Destination(ep *core.Endpoint, in *core.Receipt, st datasheet.Status, extent, _ uint32, _ bool) datasheet.Status {
	room, entry := in.Total, k.Rx.Entry
	if in.Tabled = entry != nil; in.Tabled {
		l := &in.Entry
		l.Segments = append(l.Segments[:0], *entry)
		l.Total, l.At, l.Base, l.Memory, l.Peer = entry.Length, 0, 0, nil, false
		room = l.Total
	}
	switch {
	case st != 0:
		return st
	case extent > room:
		return datasheet.StatusLengthError
	case in.Tabled:
		return k.Regions.Check(&in.Entry, ep.Ptag, true)
	}
	return 0
}

// share moves the next token of the queue that q shares to q. It returns false if there is
// none.
func (c *Transport) share(q *core.WorkQueue) bool {
	if q.Source == nil || q.Producer-q.Completed > q.Mask {
		return false
	}
	from := &q.Source.Recv
	if from.Posted() == 0 {
		// As in takeReceive.
		if c.Bells.TakePage(q.Source.ID); from.Posted() == 0 {
			return false
		}
	}
	t, st := c.Regions.Token(from, from.Fetched)
	if st != 0 {
		t = datasheet.Token{} // no region has handle 0: it ends with a protection error
	}
	from.Fetched++
	q.Tokens[q.Producer&q.Mask] = t
	q.Producer++
	return true
}

// descriptors fetches the messages of VIs from host memory.
type descriptors struct{ *core.Regions }

// control returns the control segment that a token names, with room for a data segment behind it. It returns nil
// unless its region is in one piece of host memory.
func (m descriptors) control(ep *core.Endpoint, q *core.WorkQueue, t *datasheet.Token) *datasheet.ControlSegment {
	at := *t // once: the host may be writing
	if at.Flags != 0 && !q.Named {
		return nil
	}
	if seg := q.Described.Control(m.Regions, at.Handle, at.Address); seg != nil {
		return seg
	}
	if m.Find(&q.Described, at.Handle, ep.Ptag, at.Address, datasheet.ControlSegmentSize+datasheet.DataSegmentSize, true) == nil {
		return nil
	}
	return q.Described.Control(m.Regions, at.Handle, at.Address)
}

// piece returns the data segment of a send or receive of n bytes in one segment, and where they are. That is nil
// unless they are in one piece of host memory.
func (m descriptors) piece(ep *core.Endpoint, q *core.WorkQueue, seg *datasheet.ControlSegment, bits datasheet.Control, n uint32) (from core.Segment, at *byte) {
	if bits&^datasheet.ControlImmediate != datasheet.OpSend || seg.SegCount != 1 || seg.Front != 0 {
		return from, nil
	}
	data := core.Behind(seg)
	from = core.Segment{Address: data.Address, Handle: data.Handle, Length: data.Length}
	if from.Length != n {
		return from, nil
	}
	// What a receive queue remembers may be written to.
	if at = q.Payload.Bytes(m.Regions, from.Handle, from.Address, uint64(n)); at != nil {
		return from, at
	}
	if b := m.Find(&q.Payload, from.Handle, ep.Ptag, from.Address, uint64(n), q.Receive); len(b) > 0 {
		return from, &b[0]
	}
	return from, nil
}

// inline returns the n bytes of a message that stand in its descriptor, nil if they do not.
func (m descriptors) inline(q *core.WorkQueue, seg *datasheet.ControlSegment, n uint32) *byte {
	if count := uint32(seg.SegCount); count != (n+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize || count > uint32(m.Limits.Segments) {
		return nil
	}
	return q.Described.Inline(seg, n)
}

// fetch takes the next token of a queue, and copies the descriptor that it names into l. It reports whether that is a
// send or a receive of one piece of memory; fetchAny begins anew with the others.
//
// One copy of it serves sends and receives: both stay in the processor's cache of instructions.
//
//go:noinline
func (m descriptors) fetch(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) bool {
	if q.Pushed != nil || q.Epoch != m.Epoch {
		return m.fetchAny(ep, q, l)
	}
	t := q.Tokens[q.Fetched&q.Mask] // once: the host may be writing
	seg := m.control(ep, q, &t)
	if seg == nil || seg.Front != 0 {
		return m.fetchAny(ep, q, l)
	}
	bits, immediate, n, limit := seg.Control, seg.Immediate, seg.Length, ep.MaxTransfer
	if q.Receive {
		limit = m.Limits.Transfer
	}
	var from core.Segment
	var at *byte
	switch {
	case n > limit || n == 0:
	case bits&^datasheet.ControlImmediate != datasheet.OpSend|datasheet.ControlInline:
		from, at = m.piece(ep, q, seg, bits, n)
	case !q.Receive:
		from, at = core.Segment{Address: t.Address + datasheet.ControlSegmentSize, Handle: t.Handle, Length: n}, m.inline(q, seg, n)
	}
	l.Token, l.Control, l.Status, l.Total, l.Descriptor, l.Stamp = t, core.Control{Bits: bits, Immediate: immediate}, 0, n, seg, m.Stamp
	if at == nil {
		if seg.SegCount != 2 || !m.fetchRDMA(ep, q, l) {
			return m.fetchAny(ep, q, l)
		}
		return false
	}
	q.Fetched++
	l.Segments, l.At, l.Base, l.Eager, l.Front, l.Described, l.Pushed = append(l.Segments[:0], from), 0, 0, 0, 0, nil, nil
	l.Memory = bytesAt(at, n)
	return true
}

// fetchRDMA goes on with a fetch that has copied a control segment, with one data segment behind an address
// segment. It returns false, and has fetched nothing, if that is no RDMA operation or anything special.
func (m descriptors) fetchRDMA(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) bool {
	op := l.Control.Bits
	segments := m.Near(&q.Described, l.Token.Handle, ep.Ptag, l.Token.Address+datasheet.ControlSegmentSize, datasheet.AddressSegmentSize+datasheet.DataSegmentSize, true)
	if q.Receive || op != datasheet.OpRDMAWrite && op != datasheet.OpRDMARead || l.Total > ep.MaxTransfer ||
		segments == nil || allows(ep, op) != 0 {
		return false
	}
	to, data := datasheet.AddressSegmentAt(segments), datasheet.DataSegmentAt(segments[datasheet.AddressSegmentSize:])
	target := core.Segment{Address: to.Address, Handle: to.Handle}
	from := core.Segment{Address: data.Address, Handle: data.Handle, Length: data.Length}
	l.Memory = m.Find(&q.Payload, from.Handle, ep.Ptag, from.Address, uint64(l.Total), op == datasheet.OpRDMARead)
	if to.Reserved != 0 || from.Length != l.Total || l.Memory == nil {
		return false
	}
	q.Fetched++
	l.Segments, l.At, l.Base, l.Eager, l.Front, l.Described, l.Pushed = append(l.Segments[:0], from, target)[:1], 0, 0, 0, 0, nil, nil
	return true
}

// fetchAny is fetch for any token. What is wrong with it, with the descriptor or with a segment
// shows in l.status.
func (m descriptors) fetchAny(ep *core.Endpoint, q *core.WorkQueue, l *core.Layout) (usual bool) {
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
	return l.Status == 0 && l.Control.Bits&core.UnlikeSends == 0 && l.Memory != nil && l.Pushed == nil
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
