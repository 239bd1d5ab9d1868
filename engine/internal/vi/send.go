package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// send sends the next message that is posted, if it is a usual one.
func (p *Path) send() bool {
	switch {
	case p.sends != nil:
		return p.Send()
	case p.u != nil:
		return p.sendLoose()
	}
	return p.sendFormatted()
}

// Send sends the next message that is posted: a send of one frame, from one segment or inline, that has credit, or what rdma
// begins. Of anything else it returns false, and nothing has happened.
func (p *Path) Send() bool {
	r, q, k := p.r, &p.Ep.Send, p.k
	if q.Producer == q.Fetched || !k.Plain || r.head != r.next || k.Tx.Held || k.Events&core.Suspended != 0 ||
		r.broken || q.Pushed != nil {
		return false
	}
	if q.Epoch != k.Regions.Epoch && !k.Regions.Mapped(q) {
		return false
	}
	if r.serving != nil && r.serving.due() {
		return false
	}
	if p.head == p.next {
		p.head, p.next = q.Fetched, q.Fetched
	}
	// The record of a message stands at the place of its token. Both bounds are looked at
	// here, once: that the slices are as long as the queue's mask says is something
	// that the compiler does not know.
	i := int(q.Fetched & q.Mask)
	if i >= len(p.sends) || i >= len(q.Tokens) {
		return false
	}
	m := descriptors{&k.Regions}
	seg := m.control(p.Ep, q, &q.Tokens[i])
	if seg == nil {
		return false
	}
	bits, n := seg.Control, seg.Length
	if n-1 >= p.Ep.MaxPayload || n > p.Ep.MaxTransfer || n < p.Ep.Shortest || seg.Front != 0 {
		return p.rdma(bits.Op())
	}
	var from *byte
	if bits == datasheet.OpSend|datasheet.ControlInline {
		from = m.inline(q, seg, n)
	} else if _, from = m.piece(p.Ep, q, seg, bits, n); from == nil {
		return p.rdma(bits.Op())
	}
	if from == nil || int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	credit := r.Done + p.Ep.Recv.Producer - p.Ep.Recv.Completed
	if credit-r.Offered >= 1<<16 || r.Expect-r.Told >= 1<<16 {
		return false
	}
	header := p.peer | uint64(uint16(r.Nxt))<<16 | uint64(uint16(r.Expect))<<32 | uint64(uint16(credit))<<48
	s := &p.sends[i]
	s.lent = 0
	if n >= core.LendFrom && bits == datasheet.OpSend && k.Lender != nil {
		if !p.lend(header, p.to, nil, bytesAt(from, n), s) {
			return false
		}
	} else {
		to, last := p.to, q.Fetched+1 == q.Producer
		if bits&datasheet.ControlImmediate != 0 {
			to = to.WithImmediate(seg.Immediate)
		}
		mark, ok := p.line.Put(header, to, bytesAt(from, n), last)
		if !ok {
			return false
		}
		s.mark = mark
		if !last {
			k.Events |= core.Unflushed
		} else {
			k.Events &^= core.Unflushed
		}
	}
	s.seg, s.stamp, s.psn, s.number, s.op = seg, k.Regions.Stamp, r.Nxt, r.numbered, datasheet.StatusOpSend
	r.Nxt++
	r.numbered++
	r.stalled, r.fetched = false, false
	q.Fetched++
	p.next = q.Fetched
	r.Tell(credit)
	if r.lastMark = s.mark; !r.flying {
		r.fly()
	}
	k.Progress++
	k.Count(datasheet.CounterFramesSent, 1)
	k.Count(datasheet.CounterBytesSent, uint64(n))
	return true
}

// sendFormatted is Send for queues without tokens. It sends the next message that is posted, if it is in
// one or two pieces of memory, fits a frame and has credit. Otherwise it returns false, and the message has been
// fetched at most.
func (p *Path) sendFormatted() bool {
	r, q, k := p.r, &p.Ep.Send, p.k
	if q.Posted() == 0 || !k.Plain || k.Tx.Held || k.Events&core.Suspended != 0 || r.broken || r.fetched ||
		r.next-r.head >= uint32(len(r.messages)) || r.head != r.next && !r.message(r.next-1).AllCut || r.serving != nil && r.serving.due() {
		return false
	}
	if credit := r.Credit(); r.tells(credit) && (int32(r.limit-r.numbered) > 0 || r.moreCredit()) {
		m := r.message(r.next)
		k.begin(p.Ep, m, r.numbered)
		if p.put(p.peer|uint64(uint16(r.Nxt))<<16|uint64(uint16(r.Expect))<<32|uint64(uint16(credit))<<48, m) {
			r.next++
			r.numbered++
			r.stalled = false
			r.left(m)
			r.Tell(credit)
			return true
		}
		q.Fetched-- // it counts as posted
		r.fetched = true
	}
	return false
}

// lend sends where the memory of a message is, behind the extension of one that has it.
func (p *Path) lend(header uint64, to datasheet.ShortBeside, extension, memory []byte, s *sent) bool {
	k := p.k
	id, at, ok := k.Lender.Lend(memory)
	if !ok {
		return false
	}
	reference := p.table[1:]
	reference[0] = datasheet.Reference{Region: id, Length: uint32(len(memory)), Offset: at}
	if s.mark, ok = p.line.PutPair(header, to|datasheet.ShortLent, extension, datasheet.ReferenceBytes(reference), false); !ok {
		return false
	}
	k.Lender.Lent(p.Ep.ID)
	p.r.Lent = p.r.Nxt + 1
	s.lent = p.Ep.Send.Payload.Handle()
	k.Events |= core.Unflushed
	if p.Ep.Send.Producer-p.Ep.Send.Fetched <= 1 {
		k.Tx.Flush()
	}
	return true
}

// rdma begins the next message, if that is an RDMA operation that the peer lets this end carry out by a copy, or
// a write of one frame.
func (p *Path) rdma(op datasheet.Control) bool {
	r, q := p.r, &p.Ep.Send
	copies := p.k.Regions.Direct.Open && p.head == p.next
	if r.fetched || op == datasheet.OpSend || !copies && op != datasheet.OpRDMAWrite {
		return false
	}
	m := r.message(r.next)
	r.nic.begin(p.Ep, m, r.numbered)
	if copies && r.carryNext(m) || p.write(m) {
		return true
	}
	q.Fetched-- // it counts as posted
	r.fetched = true
	return false
}

// write sends m, an RDMA write from one piece of memory, if it fits a frame: its extension goes ahead of the bytes, or of
// the reference to them.
func (p *Path) write(m *core.Sending) bool {
	r, q, k := p.r, &p.Ep.Send, p.k
	n, credit := uint32(len(m.Memory)), r.Credit()
	if m.Control.Bits != datasheet.OpRDMAWrite || m.Status != 0 || m.Pushed != nil || n == 0 || n != m.Total || n > p.Ep.MaxPayload-datasheet.ExtensionSize || !r.tells(credit) {
		return false
	}
	at := m.Target()
	extension := datasheet.ReferenceBytes(p.table[:1])
	*datasheet.ExtensionAt(extension) = datasheet.Extension{Address: at.Address, Handle: at.Handle, Request: r.Nxt}
	header := p.peer | uint64(uint16(r.Nxt))<<16 | uint64(uint16(r.Expect))<<32 | uint64(uint16(credit))<<48
	s := &p.sends[(q.Fetched-1)&q.Mask]
	if s.lent = 0; n >= core.LendFrom && k.Lender != nil {
		if !p.lend(header, p.to|datasheet.ShortWrite, extension, m.Memory, s) {
			return false
		}
	} else {
		last := q.Fetched == q.Producer
		mark, ok := p.line.PutPair(header, p.to|datasheet.ShortWrite, extension, m.Memory, last)
		if !ok {
			return false
		}
		if s.mark = mark; !last {
			k.Events |= core.Unflushed
		}
	}
	s.seg, s.stamp, s.psn, s.number, s.op = m.Descriptor, m.Stamp, r.Nxt, r.numbered, datasheet.StatusOpRDMAWrite
	r.Nxt++
	p.next = q.Fetched
	r.Tell(credit)
	if r.lastMark = s.mark; !r.flying {
		r.fly()
	}
	k.Progress++
	k.Count(datasheet.CounterFramesSent, 1)
	k.Count(datasheet.CounterBytesSent, uint64(n))
	return true
}

// reap completes the sends that have arrived: the peer has taken the wire up to taken, or has acknowledged them.
func (p *Path) reap(taken uint32) (any bool) {
	r, q, k := p.r, &p.Ep.Send, p.k
	for p.head != p.next {
		s := &p.sends[p.head&q.Mask]
		if int32(r.Una-s.psn) <= 0 {
			if int32(taken-s.mark) < 0 {
				break
			}
			r.Una = s.psn + 1
		}
		if s.stamp != k.Regions.Stamp {
			p.done(0)
		} else {
			s.seg.StoreStatus(datasheet.StatusDone | s.op)
			p.head++
			q.Completed++
			k.Progress++
			k.Count(datasheet.CounterCompletions, 1)
			if q.Watched() {
				k.CQs.Tell(p.Ep, q, q.Completed-1, datasheet.StatusDone|s.op)
			}
		}
		k.Count(datasheet.CounterMessagesSent, 1)
		any = true
	}
	return any
}

// done completes the oldest send, whose descriptor may have gone.
func (p *Path) done(st datasheet.Status) {
	q, k := &p.Ep.Send, p.k
	s := &p.sends[p.head&q.Mask]
	p.head++
	// A host that posts more than the queue holds has written over the token: the descriptor is the one that was sent.
	l, n := core.Layout{Descriptor: s.seg, Stamp: s.stamp}, uint32(0)
	l.Token, _ = k.Regions.Token(q, q.Completed)
	if s.op == datasheet.StatusOpRDMAWrite {
		l.Control.Bits = datasheet.OpRDMAWrite
	}
	if seg := k.Regions.ControlAt(l.Token, p.Ep.Ptag); seg != nil && st == 0 {
		n = seg.Length
	}
	k.CQs.Complete(p.Ep, q, &l, n, 0, st)
}

// flush ends what has not arrived, at the end of the connection: the first with status first. It
// returns the status of what follows, and whether there was any.
func (p *Path) flush(first datasheet.Status) (next datasheet.Status, any bool) {
	for p.head != p.next {
		s := &p.sends[p.head&p.Ep.Send.Mask]
		if !any && int32(p.r.Una-s.psn) > 0 {
			p.done(0)
			p.k.Count(datasheet.CounterMessagesSent, 1)
			continue
		}
		switch s.lent {
		case revoked:
			first = datasheet.StatusProtectionError
		case refused:
			first = datasheet.StatusRDMAProtection
		}
		p.done(first)
		first, any = datasheet.StatusFlushed, true
	}
	return first, any
}

// revoke ends the connection if memory of the region handle is lent for a send that has not arrived.
func (p *Path) revoke(handle uint32) bool {
	for i := p.head; i != p.next; i++ {
		s := &p.sends[i&p.Ep.Send.Mask]
		if s.lent == handle && int32(p.r.Una-s.psn) <= 0 {
			s.lent, p.r.broken = revoked, true
			p.k.Conns.Fail(p.Ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
			return true
		}
	}
	return false
}
