package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Path is the way of a VI's messages of one frame over a wire that loses nothing. What it
// keeps of a message is one small record; descriptor and memory are looked at once. What it does not like it
// leaves as it is, before anything has happened, to transmit and TakeFrame, which end the same. It lives as long
// as the endpoint.
type Path struct {
	k    *Transport
	Ep   *core.Endpoint
	r    *reliable // nil without such a connection
	line core.Line

	// Records have the places of their tokens.
	sends    []sent
	landings []landing
	// head and next are the sends that are not complete: numbers of tokens.
	head, next uint32
	listed     bool // it is in Transport.paths
	id         uint16
	tag        uint16 // of the frames that come
	to         datasheet.ShortBeside
	looks      uint32
}

// sent is a message that has left.
type sent struct {
	seg    *datasheet.ControlSegment
	stamp  uint64 // of the regions when seg was found
	psn    uint32
	mark   uint32 // of the wire behind it
	number uint32 // of the message
	lent   uint32 // handle of the memory that is lent for it
}

// landing is a receive: where its message goes.
type landing struct {
	seg    *datasheet.ControlSegment
	memory *byte
	stamp  uint64
	total  uint32
	index  uint32 // of the token
}

// PathOf is that of an endpoint, which it makes.
func (k *Transport) PathOf(ep *core.Endpoint) *Path {
	p, _ := ep.Path.(*Path)
	if p == nil {
		p = &Path{k: k, Ep: ep, line: k.Line, id: uint16(ep.ID)}
		ep.Path = p
	}
	return p
}

// open begins with a connection.
func (p *Path) open(r *reliable) {
	p.r, p.tag, p.to = r, uint16(p.Ep.Remote.OurKey), datasheet.ShortBeside(uint16(p.Ep.Remote.TheirKey))
	p.head, p.next = p.Ep.Send.Completed, p.Ep.Send.Completed
	if n := int(p.Ep.Send.Mask) + 1; len(p.sends) != n {
		p.sends = make([]sent, n)
	}
	if n := int(p.Ep.Recv.Mask) + 1; len(p.landings) != n {
		p.landings = make([]landing, n)
	}
	clear(p.landings)
}

// Post takes the send doorbell's value, and sends what it can. It returns false if something is left, or if it
// has done nothing.
func (p *Path) Post(value uint32) bool {
	r, q := p.r, &p.Ep.Send
	if r == nil || value-q.Completed > q.Mask+1 || int32(value-q.Producer) <= 0 || p.k.Events&core.OnReady != 0 {
		return false
	}
	q.Producer = value
	for p.Send() {
		if q.Fetched == value {
			if p.k.Events&core.Unflushed != 0 {
				p.k.Tx.Flush()
			}
			return true
		}
	}
	p.k.Ready.Add(p.Ep)
	return false
}

// Send sends the next message that is posted, if all is as it mostly is. Otherwise it returns false, and nothing
// has happened.
func (p *Path) Send() bool {
	r, q, k := p.r, &p.Ep.Send, p.k
	if r == nil || q.Producer == q.Fetched || !k.Plain || r.head != r.next || k.Tx.Held || k.Events&core.Suspended != 0 ||
		r.broken || q.Pushed != nil || q.Epoch != k.Regions.Epoch || r.serving != nil && r.serving.due() ||
		int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	if p.head == p.next {
		p.head, p.next = q.Fetched, q.Fetched
	}
	i := q.Fetched & q.Mask
	seg, memory, bits, immediate := descriptors{&k.Regions}.usual(p.Ep, q, q.Tokens[i])
	n := len(memory)
	if seg == nil {
		return p.carry()
	}
	credit := r.Credit()
	if n == 0 || uint32(n) > p.Ep.MaxPayload || uint32(n) < p.Ep.Shortest || !r.tells(credit) {
		return false
	}
	last := q.Fetched+1 == q.Producer
	header := uint64(uint16(p.Ep.Remote.Endpoint)) | uint64(uint16(r.Nxt))<<16 | uint64(uint16(r.Expect))<<32 | uint64(uint16(credit))<<48
	s := &p.sends[i]
	s.lent = 0
	if n >= core.LendFrom && k.Tx.Lends(p.Ep) && bits == datasheet.OpSend {
		if !p.lend(header, memory, s) {
			return false
		}
	} else {
		to := p.to
		if bits&datasheet.ControlImmediate != 0 {
			to = to.WithImmediate(immediate)
		}
		if uint32(n) > k.Tx.OneBurst || !p.line.Put(header, to, memory, last) {
			return false
		}
		if !last {
			k.Events |= core.Unflushed
		} else {
			k.Events &^= core.Unflushed
		}
	}
	s.seg, s.stamp, s.psn, s.mark, s.number = seg, k.Regions.Stamp, r.Nxt, k.Lossless.Mark(), r.numbered
	r.Nxt++
	r.numbered++
	r.stalled, r.fetched = false, false
	q.Fetched++
	p.next = q.Fetched
	r.Tell(credit)
	if !p.listed {
		p.listed = true
		k.wires.paths = append(k.wires.paths, p)
		k.Events |= core.InFlight
	}
	k.Progress++
	k.Count(datasheet.CounterFramesSent, 1)
	k.Count(datasheet.CounterBytesSent, uint64(n))
	return true
}

// lend sends where the memory of a message is.
func (p *Path) lend(header uint64, memory []byte, s *sent) bool {
	k := p.k
	id, at, ok := k.Lender.Lend(memory)
	if !ok {
		return false
	}
	reference := k.Tx.References[:1]
	reference[0] = datasheet.Reference{Region: id, Length: uint32(len(memory)), Offset: at}
	h := datasheet.ShortHeader{Endpoint: uint16(header), PSN: uint16(header >> 16), Ack: uint16(header >> 32), Credit: uint16(header >> 48)}
	if !k.Slots.SendShort(h, p.to|datasheet.ShortLent, datasheet.ReferenceBytes(reference), false) {
		return false
	}
	k.Lender.Lent(p.Ep.ID)
	p.r.Lent = p.r.Nxt + 1
	s.lent = p.Ep.Send.Payload.Handle()
	k.Events |= core.Unflushed
	return true
}

// carry carries out an RDMA operation by a copy, if that is what comes next and the peer lets this end.
func (p *Path) carry() bool {
	r, q := p.r, &p.Ep.Send
	if !p.k.Regions.Direct.Open || r.fetched || p.head != p.next {
		return false
	}
	m := r.message(r.next)
	usual := r.nic.begin(p.Ep, m, r.numbered)
	if !usual && r.carryNext(m) {
		return true
	}
	q.Fetched-- // it counts as posted
	r.fetched = true
	return false
}

// PostReceives takes the receive doorbell's value. It returns false if it has done nothing.
func (p *Path) PostReceives(value uint32) bool {
	r, q, k := p.r, &p.Ep.Recv, p.k
	if r == nil || value-q.Completed > q.Mask+1 || int32(value-q.Producer) <= 0 || q.Pushed != nil || q.Epoch != k.Regions.Epoch {
		return false
	}
	for ; q.Producer != value; q.Producer++ {
		p.prepare(q.Producer)
	}
	r.giveCredit()
	return true
}

// prepare looks at receive number i. It returns nil if that is not as most are.
func (p *Path) prepare(i uint32) *landing {
	q, k := &p.Ep.Recv, p.k
	seg, memory, bits, _ := descriptors{&k.Regions}.usual(p.Ep, q, q.Tokens[i&q.Mask])
	l := &p.landings[i&q.Mask]
	if seg == nil || len(memory) == 0 || bits != datasheet.OpSend {
		l.stamp = 0
		return nil
	}
	l.seg, l.memory, l.total, l.index, l.stamp = seg, &memory[0], uint32(len(memory)), i, k.Regions.Stamp
	return l
}

// expected returns the receive of a short frame that stands for n bytes, nil if the frame is not the next of the connection, or
// the receive not as most are.
func (p *Path) expected(header uint64, tag datasheet.ShortBeside, n uint32) *landing {
	r, q, k := p.r, &p.Ep.Recv, p.k
	if r == nil || uint16(tag) != p.tag || uint16(header>>16) != uint16(r.Expect) || int32(ahead(r.heardAck, uint16(header>>32))-r.Nxt) > 0 ||
		q.Fetched != q.Completed || q.Producer == q.Completed || n-1 >= p.Ep.MaxTransfer || n < p.Ep.Shortest {
		return nil
	}
	l := &p.landings[q.Completed&q.Mask]
	if l.stamp != k.Regions.Stamp || l.index != q.Completed {
		if q.Pushed != nil || q.Epoch != k.Regions.Epoch {
			return nil
		}
		l = p.prepare(q.Completed)
	}
	if l == nil || n > l.total {
		return nil
	}
	return l
}

// take takes a short frame without references and immediate data. If it returns false nothing has happened.
func (p *Path) take(header uint64, tag datasheet.ShortBeside, payload []byte) bool {
	l := p.expected(header, tag, uint32(len(payload)))
	if l == nil {
		return false
	}
	copy(l.bytes(uint32(len(payload))), payload)
	p.landed(l, header, uint32(len(payload)), datasheet.StatusDone|datasheet.StatusOpReceive)
	return true
}

// landed completes the message of n bytes that has been copied to its place.
func (p *Path) landed(l *landing, header uint64, n uint32, st datasheet.Status) {
	r, q, k := p.r, &p.Ep.Recv, p.k
	ack, credit := ahead(r.heardAck, uint16(header>>32)), ahead(r.heardCredit, uint16(header>>48))
	l.seg.Length = n
	l.seg.StoreStatus(st)
	l.stamp = 0
	q.Completed++
	q.Fetched++
	r.Expect++
	r.Done++
	r.Hear(&k.Clock)
	r.heardAck, r.heardCredit = ack, credit
	if int32(credit-r.limit) > 0 {
		r.takeCredit(credit)
	}
	if int32(ack-r.Una) > 0 {
		r.Una = ack
		if r.head != r.next {
			k.Unsettled.Add(p.Ep)
		}
	}
	if r.wants {
		r.answerCredit()
	}
	k.Handed = true
	k.Progress++
	k.Count(datasheet.CounterFramesReceived, 1)
	k.Count(datasheet.CounterBytesReceived, uint64(n))
	k.Count(datasheet.CounterMessagesReceived, 1)
	k.Count(datasheet.CounterCompletions, 1)
	if q.Watched() {
		k.CQs.Tell(p.Ep, q, q.Completed-1, st)
	}
}

// What Poll has come to.
type Polled uint8

const (
	PolledNothing   Polled = iota // there is nothing, nor anything else for a step to do
	PolledCompleted               // something of the queue has completed
	PolledOther                   // a step may do something
)

// stepEvery is after how many calls of Poll a step is due, which looks at timers and doorbells.
const stepEvery = 64

// Poll takes what has come, until something of the queue has completed.
func (p *Path) Poll(receive bool) Polled {
	k, r := p.k, p.r
	if p.looks++; p.looks%stepEvery == 0 || r == nil || k.Events&^core.InFlight != 0 || !k.Plain || k.Rx.Held || k.Bells.Last.Load() != 0 {
		return PolledOther
	}
	if !receive && p.head != p.next && p.reap(p.sends[p.head&p.Ep.Send.Mask].mark-1) {
		return PolledCompleted
	}
	taken := uint32(0)
	if !receive {
		taken = p.line.Look() // before the look for frames
	}
	for n := 0; ; n++ {
		payload, header, b, found := p.line.Next()
		if found != core.FoundShort {
			if found == core.FoundOther {
				return p.receive(receive)
			}
			break
		}
		to := p
		if uint16(header) != p.id {
			if to = pathTo(k.Core, uint32(uint16(header))); to == nil {
				return PolledOther
			}
		}
		if !to.take(header, b, payload) {
			return PolledOther
		}
		p.line.Pass()
		if receive && to == p {
			k.Lossless.Free()
			return PolledCompleted
		}
		if k.Events&^core.InFlight != 0 || n > core.WindowFrames {
			return PolledOther
		}
	}
	if !receive && p.head != p.next && p.reap(taken) {
		return PolledCompleted
	}
	return PolledNothing
}

// receive does what Poll does for frames of all kinds.
func (p *Path) receive(receive bool) Polled {
	of := &p.Ep.Send
	if receive {
		of = &p.Ep.Recv
	}
	before := of.Completed
	if p.k.Rx.Receive(of); of.Completed == before || p.k.Events&^core.InFlight != 0 {
		return PolledOther
	}
	return PolledCompleted
}

// pathTo is that of the connected endpoint id, nil if it has none.
func pathTo(k *core.Core, id uint32) *Path {
	if ep := k.Endpoint(id); ep != nil {
		p, _ := ep.Path.(*Path)
		return p
	}
	return nil
}

// reap completes the sends that have arrived: the wire has been taken up to taken, or the peer has said so.
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
		p.done(s, 0)
		k.Count(datasheet.CounterMessagesSent, 1)
		any = true
	}
	return any
}

// done completes the oldest send.
func (p *Path) done(s *sent, st datasheet.Status) {
	q, k := &p.Ep.Send, p.k
	p.head++
	if s.stamp != k.Regions.Stamp || st != 0 {
		l := core.Layout{}
		l.Token, _ = k.Regions.Token(q, q.Completed)
		n := uint32(0)
		if seg := k.Regions.ControlAt(l.Token, p.Ep.Ptag); seg != nil && st == 0 {
			n = seg.Length
		}
		k.Complete(p.Ep, q, &l, n, 0, st)
		return
	}
	st = datasheet.StatusDone | datasheet.StatusOpSend
	s.seg.StoreStatus(st)
	q.Completed++
	k.Progress++
	k.Count(datasheet.CounterCompletions, 1)
	if q.Watched() {
		k.CQs.Tell(p.Ep, q, q.Completed-1, st)
	}
}

// flush ends what has not arrived, at the end of the connection: the first with status first.
func (p *Path) flush(first datasheet.Status) (next datasheet.Status, any bool) {
	for p.head != p.next {
		s := &p.sends[p.head&p.Ep.Send.Mask]
		if !any && int32(p.r.Una-s.psn) > 0 {
			p.done(s, 0)
			p.k.Count(datasheet.CounterMessagesSent, 1)
			continue
		}
		if s.lent == revoked {
			first = datasheet.StatusProtectionError
		}
		p.done(s, first)
		first, any = datasheet.StatusFlushed, true
	}
	return first, any
}

// revoked is the handle of memory that was taken away while it was lent.
const revoked = ^uint32(0)

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

// TakePaths completes the sends of all VIs that have arrived.
func (k *Transport) takePaths(taken uint32) {
	left := k.wires.paths[:0]
	for _, p := range k.wires.paths {
		if p.r != nil {
			p.reap(taken)
		}
		if p.listed = p.r != nil && p.head != p.next; p.listed {
			left = append(left, p)
		}
	}
	clear(k.wires.paths[len(left):])
	k.wires.paths = left
}
