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

// completionQueue is a ring of entries in host memory.
type completionQueue struct {
	id        uint32
	iova      uint64
	indexIOVA uint64
	log2      uint8
	vector    uint16
	users     int
	dead      bool
	armed     bool
	armWord   uint32
	producer  uint32 // free-running
	consumer  uint32 // our last copy of the host's index
	entries   []descriptors.Completion
	index     *uint32
	epoch     uint64
	bell      *uint32 // arm doorbell in shared memory, nil if trapped
}

// depth is the number of tokens the ring holds.
func (q *workQueue) depth() uint32 { return q.mask + 1 }

// posted is the number of tokens that wait to be fetched.
func (q *workQueue) posted() uint32 { return q.producer - q.fetched }

// token reads token number i of the ring, once: the host may be writing. A token
// that the bus refuses to give has a status, and names no descriptor.
func (e *Engine) token(q *workQueue, i uint32) (descriptors.Token, descriptors.Status) {
	if q.epoch != e.epoch {
		size := uint64(q.depth()) * descriptors.TokenSize
		w, err := e.memory.Window(q.iova, size, false)
		if err != nil || uint64(len(w)) < size {
			return e.tokenApart(q, i)
		}
		q.tokens, q.epoch = descriptors.TokensAt(w), e.epoch
	}
	return q.tokens[i&q.mask], 0
}

// tokenApart is token for a ring that is not contiguous for us.
func (e *Engine) tokenApart(q *workQueue, i uint32) (descriptors.Token, descriptors.Status) {
	w, err := e.memory.Window(q.iova+uint64(i&q.mask)*descriptors.TokenSize, descriptors.TokenSize, false)
	if t := descriptors.TokensAt(w); err == nil && t != nil {
		return t[0], 0
	}
	e.count(descriptors.CounterDMAFaults, 1)
	return descriptors.Token{}, descriptors.StatusProtectionError
}

// fetch copies the descriptor that t names into l. A zero status means that
// the descriptor is sound; control is valid then.
func (e *Engine) fetch(ep *endpoint, t descriptors.Token, l *layout) (c control, st descriptors.Status) {
	l.segments, l.total, l.at, l.base, l.checked = l.segments[:0], 0, 0, 0, false
	if t.Address%descriptors.DescriptorAlign != 0 || t.Flags != 0 {
		return c, descriptors.StatusFormatError
	}
	// The status word will be written, so the region must allow writing.
	r, off := e.reach(t.Handle, ep.ptag, t.Address, descriptors.ControlSegmentSize, true)
	if r == nil {
		e.count(descriptors.CounterProtectionErrors, 1)
		return c, descriptors.StatusProtectionError
	}
	seg := descriptors.ControlAt(e.window(r, off, descriptors.ControlSegmentSize, true))
	if seg == nil {
		return c, descriptors.StatusProtectionError
	}
	c = control{bits: seg.Control, immediate: seg.Immediate, length: seg.Length}
	count := uint64(seg.SegCount)
	if seg.Reserved != 0 || c.bits&descriptors.ControlReserved != 0 || c.bits.Op() != descriptors.OpSend || count > uint64(e.limits.Segments) {
		return c, descriptors.StatusFormatError
	}
	n := count * descriptors.DataSegmentSize
	if c.bits&descriptors.ControlInline != 0 {
		return c, e.fetchInline(ep, t, l, &c, n)
	}
	if r, off = e.reach(t.Handle, ep.ptag, t.Address+descriptors.ControlSegmentSize, n, false); r == nil {
		e.count(descriptors.CounterProtectionErrors, 1)
		return c, descriptors.StatusProtectionError
	}
	var total uint64
	for n > 0 {
		w := e.window(r, off, n, false)
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
	if total != uint64(c.length) || total > uint64(e.limits.Transfer) {
		return c, descriptors.StatusLengthError
	}
	l.total = uint32(total)
	return c, 0
}

// fetchInline is the rest of fetch for a descriptor with n bytes of room for inline
// data: that is as one segment, in the descriptor's own region.
func (e *Engine) fetchInline(ep *endpoint, t descriptors.Token, l *layout, c *control, n uint64) descriptors.Status {
	if (uint64(c.length)+descriptors.DataSegmentSize-1)&^(descriptors.DataSegmentSize-1) != n {
		return descriptors.StatusFormatError
	}
	s := segment{t.Address + descriptors.ControlSegmentSize, t.Handle, c.length}
	if r, _ := e.reach(s.handle, ep.ptag, s.address, uint64(s.length), false); r == nil {
		e.count(descriptors.CounterProtectionErrors, 1)
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

// complete ends the oldest token of a queue: descriptor, then completion entry,
// then interrupt. st lacks StatusDone and the operation.
func (e *Engine) complete(ep *endpoint, q *workQueue, t descriptors.Token, length, immediate uint32, st descriptors.Status) {
	st |= descriptors.StatusDone
	if q.receive {
		st |= descriptors.StatusOpReceive
	}
	r, off := e.reach(t.Handle, ep.ptag, t.Address, descriptors.ControlSegmentSize, true)
	var seg *descriptors.ControlSegment
	if r != nil {
		seg = descriptors.ControlAt(e.window(r, off, descriptors.ControlSegmentSize, true))
	}
	if seg == nil {
		code := descriptors.EventCompletionProtect
		if st&(descriptors.StatusFormatError|descriptors.StatusProtectionError) != 0 {
			code = descriptors.EventPostDescriptor
		}
		e.event(descriptors.Event{Code: code, Endpoint: ep.id, CQ: descriptors.NoCQ, Descriptor: t.Address})
	} else {
		seg.Length = length
		if st&descriptors.StatusImmediate != 0 {
			seg.Immediate = immediate
		}
		seg.StoreStatus(st)
	}
	index := q.completed
	q.completed++
	e.progress++
	e.count(descriptors.CounterCompletions, 1)
	if q.cq != nil {
		e.enter(ep, q, index, st)
	} else if q.armed && descriptors.ArmReached(q.armWord, q.completed) {
		q.armed = false
		e.raise(q.vector)
	}
}

// enter adds an entry to the completion queue of q.
func (e *Engine) enter(ep *endpoint, q *workQueue, index uint32, st descriptors.Status) {
	cq := q.cq
	if cq.dead {
		return
	}
	if cq.epoch != e.epoch && !e.mapCQ(cq) {
		e.killCQ(cq, descriptors.EventCompletionProtect)
		return
	}
	if cq.producer-cq.consumer > uint32(len(cq.entries)-1) {
		cq.consumer = descriptors.LoadIndex(cq.index)
		if cq.producer-cq.consumer > uint32(len(cq.entries)-1) {
			e.killCQ(cq, descriptors.EventCQOverrun)
			return
		}
	}
	entry := &cq.entries[cq.producer&uint32(len(cq.entries)-1)]
	entry.Endpoint, entry.Index, entry.Status = ep.id, index, uint32(st)
	flags := descriptors.PhaseOf(cq.producer, cq.log2)
	if q.receive {
		flags |= descriptors.CompletionReceive
	}
	entry.Publish(flags)
	cq.producer++
	if cq.armed && descriptors.ArmReached(cq.armWord, cq.producer) {
		cq.armed = false
		e.raise(cq.vector)
	}
}

// mapCQ looks up the memory of a completion queue; it must be contiguous.
func (e *Engine) mapCQ(cq *completionQueue) bool {
	size := uint64(descriptors.CompletionSize) << cq.log2
	w, err := e.memory.Window(cq.iova, size, true)
	if err != nil || uint64(len(w)) < size {
		e.count(descriptors.CounterDMAFaults, 1)
		return false
	}
	x, err := e.memory.Window(cq.indexIOVA, 4, false)
	if err != nil {
		e.count(descriptors.CounterDMAFaults, 1)
		return false
	}
	cq.entries, cq.index = descriptors.CompletionsAt(w[:size]), descriptors.IndexAt(x)
	if cq.entries == nil || cq.index == nil {
		return false
	}
	cq.epoch = e.epoch
	return true
}

// killCQ stops a completion queue that lost an entry. Its endpoints cannot be
// trusted to report any more, so they go to the error state.
func (e *Engine) killCQ(cq *completionQueue, code descriptors.EventCode) {
	cq.dead = true
	e.event(descriptors.Event{Code: code, CQ: cq.id})
	e.raise(cq.vector)
	e.doomed = append(e.doomed, cq)
}
