package vi

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

// Path is the way of a VI's messages of one frame over a wire that loses nothing. It is also the host's way into
// an engine that it steps itself: a call for each of its own. What
// it keeps of a message is one small record; descriptor and memory are looked at once. What it does not like it
// leaves as it is, before anything has happened, to Transmit and TakeFrame, which end the same. It lives as long
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
	looks      uint32
	prepared   uint32 // the first receive that has not been looked at
	id         uint16
	tag        uint16 // of the frames that come
	to         datasheet.ShortBeside
	peer       uint64 // Endpoint of the header
	listed     bool   // it is in Transport.paths

	Host
}

// Host is what a path needs of an engine that its host steps.
type Host struct {
	Mu   *hotlock.Mutex
	Gate *atomic.Uint32 // not zero: bits of Gate...
	// Ring takes what was stored to a doorbell; stored says that it has to wait for the step under way.
	Ring func(b core.Bell, value uint32, stored bool)
	// Step does what Poll does, whatever there is to do.
	Step func(receive, send bool) bool
	// Wake wakes those who wait for something to do.
	Wake func()
}

// Bits of Host.Gate.
const (
	GateSteps uint32 = 1 << iota // Poll has more to do than a path knows
	GatePair                     // each vain look steps the other end too
	GateWakes                    // somebody waits
)

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
	stamp  uint64 // of the regions when it was found; zero: look for it
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
	p.r, p.tag, p.to, p.peer = r, uint16(p.Ep.Remote.OurKey), datasheet.ShortBeside(uint16(p.Ep.Remote.TheirKey)), uint64(uint16(p.Ep.Remote.Endpoint))
	p.head, p.next = p.Ep.Send.Completed, p.Ep.Send.Completed
	if n := int(p.Ep.Send.Mask) + 1; len(p.sends) != n {
		p.sends = make([]sent, n)
	}
	if n := int(p.Ep.Recv.Mask) + 1; len(p.landings) != n {
		p.landings = make([]landing, n)
	}
	clear(p.landings)
	p.prepared = p.Ep.Recv.Completed
	p.prepareAll()
}

// Post is described at vfio.Path.
func (p *Path) Post(producer uint32) {
	if !p.Mu.TryLock() {
		p.Ring(core.BellSend, producer, true)
		return
	}
	if q := &p.Ep.Send; !p.takes(q, producer) || p.k.Events&core.OnReady != 0 {
		p.Ring(core.BellSend, producer, false)
	} else {
		q.Producer = producer
		for p.Send() && q.Fetched != producer {
		}
		if q.Fetched != producer || p.k.Carried != 0 {
			p.left(producer)
		}
	}
	p.Mu.Unlock()
	if p.Gate.Load()&GateWakes != 0 {
		p.Wake()
	}
}

// takes reports whether a doorbell's value can be, and nothing else is to be done before.
func (p *Path) takes(q *core.WorkQueue, producer uint32) bool {
	if p.k.Bells.Last.Load() != 0 {
		return false
	}
	return p.r != nil && producer-q.Completed <= q.Mask+1 && int32(producer-q.Producer) > 0
}

// left has others send what Send has left.
func (p *Path) left(producer uint32) {
	if p.k.Events&core.Unflushed != 0 {
		p.k.Tx.Flush()
	}
	if p.Ep.Send.Posted() != 0 || p.k.Carried >= CarriedPerRound {
		p.Ring(core.BellSend, producer, false)
	}
}

// Send sends the next message that is posted, if all is as it mostly is. Otherwise it returns false, and nothing
// has happened.
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
	if int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	if p.head == p.next {
		p.head, p.next = q.Fetched, q.Fetched
	}
	i := int(q.Fetched & q.Mask)
	if i >= len(p.sends) || i >= len(q.Tokens) {
		return false
	}
	t := &q.Tokens[i]
	seg := q.Described.Control(&k.Regions, t.Handle, t.Address)
	if seg == nil || t.Flags != 0 {
		if seg = p.find(q, t); seg == nil {
			return p.carry()
		}
	}
	bits, n := seg.Control, seg.Length
	if n-1 >= p.Ep.MaxPayload || n > p.Ep.MaxTransfer || n < p.Ep.Shortest || seg.Front != 0 {
		return p.carry()
	}
	var from *byte
	if bits == datasheet.OpSend|datasheet.ControlInline {
		if uint32(seg.SegCount) == (n+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize && seg.SegCount <= k.Limits.Segments {
			from = q.Described.Inline(seg, n)
		}
	} else if from = p.source(q, seg, bits, n); from == nil {
		return p.carry()
	}
	if from == nil {
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
		if !p.lend(header, bytesAt(from, n), s) {
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
	s.seg, s.stamp, s.psn, s.number = seg, k.Regions.Stamp, r.Nxt, r.numbered
	r.Nxt++
	r.numbered++
	r.stalled, r.fetched = false, false
	q.Fetched++
	p.next = q.Fetched
	r.Tell(credit)
	if !p.listed {
		p.list()
	}
	k.Progress++
	k.Count(datasheet.CounterFramesSent, 1)
	k.Count(datasheet.CounterBytesSent, uint64(n))
	return true
}

// find looks for the region of a token, nil if its descriptor is not as most are.
func (p *Path) find(q *core.WorkQueue, t *datasheet.Token) *datasheet.ControlSegment {
	at := *t
	if p.k.Regions.Find(&q.Described, at.Handle, p.Ep.Ptag, at.Address, datasheet.ControlSegmentSize+datasheet.DataSegmentSize, true) == nil || at.Flags != 0 {
		return nil
	}
	return q.Described.Control(&p.k.Regions, at.Handle, at.Address)
}

// source is the memory of the n bytes of a message in one segment, or of a receive, nil of another one.
func (p *Path) source(q *core.WorkQueue, seg *datasheet.ControlSegment, bits datasheet.Control, n uint32) *byte {
	if bits&^datasheet.ControlImmediate != datasheet.OpSend || seg.SegCount != 1 || seg.Front != 0 {
		return nil
	}
	data := core.Behind(seg)
	handle, address := data.Handle, data.Address
	if data.Length != n {
		return nil
	}
	if b := q.Payload.Bytes(&p.k.Regions, handle, address, uint64(n)); b != nil && (q.Payload.Writable() || !q.Receive) {
		return b
	}
	if b := p.k.Regions.Find(&q.Payload, handle, p.Ep.Ptag, address, uint64(n), q.Receive); len(b) > 0 {
		return &b[0]
	}
	return nil
}

func (p *Path) list() {
	p.listed = true
	p.k.wires.paths = append(p.k.wires.paths, p)
	p.k.Events |= core.InFlight
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
	if s.mark, ok = p.line.Put(header, p.to|datasheet.ShortLent, datasheet.ReferenceBytes(reference), false); !ok {
		return false
	}
	k.Lender.Lent(p.Ep.ID)
	p.r.Lent = p.r.Nxt + 1
	s.lent = p.Ep.Send.Payload.Handle()
	k.Events |= core.Unflushed
	if p.Ep.Send.Fetched+1 == p.Ep.Send.Producer {
		k.Tx.Flush()
	}
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

// PostReceives is described at vfio.Path.
func (p *Path) PostReceives(producer uint32) {
	if !p.Mu.TryLock() {
		p.Ring(core.BellRecv, producer, true)
		return
	}
	if q := &p.Ep.Recv; !p.takes(q, producer) || q.Pushed != nil {
		p.Ring(core.BellRecv, producer, false)
	} else {
		q.Producer = producer
		p.prepareAll()
		if p.r.giveCredit(); p.k.Events&core.OnAcks != 0 {
			p.Ring(core.BellRecv, producer, false) // the peer waits
		}
	}
	p.Mu.Unlock()
	if p.Gate.Load()&GateWakes != 0 {
		p.Wake()
	}
}

// prepareAll looks at the receives that have been posted since.
func (p *Path) prepareAll() {
	q := &p.Ep.Recv
	if q.Epoch != p.k.Regions.Epoch && !p.k.Regions.Mapped(q) || q.Pushed != nil {
		return
	}
	if int32(q.Completed-p.prepared) > 0 {
		p.prepared = q.Completed
	}
	for ; p.prepared != q.Producer; p.prepared++ {
		p.prepare(p.prepared)
	}
}

// prepare looks at receive number i. It returns nil if that is not as most are.
func (p *Path) prepare(i uint32) *landing {
	q, k := &p.Ep.Recv, p.k
	j := int(i & q.Mask)
	if j >= len(p.landings) || j >= len(q.Tokens) {
		return nil
	}
	t, l := &q.Tokens[j], &p.landings[j]
	seg := q.Described.Control(&k.Regions, t.Handle, t.Address)
	if seg == nil || t.Flags != 0 {
		if seg = p.find(q, t); seg == nil {
			l.stamp = 0
			return nil
		}
	}
	n := seg.Length
	b := p.source(q, seg, seg.Control, n)
	if b == nil || n > k.Limits.Transfer {
		l.stamp = 0
		return nil
	}
	l.seg, l.memory, l.total, l.index, l.stamp = seg, b, n, i, k.Regions.Stamp
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
	i := int(q.Completed & q.Mask)
	if i >= len(p.landings) {
		return nil
	}
	l := &p.landings[i]
	if l.stamp != k.Regions.Stamp || l.index != q.Completed {
		if q.Pushed != nil || !k.Regions.Mapped(q) {
			return nil
		}
		l = p.prepare(q.Completed)
	}
	if l == nil || n > l.total {
		return nil
	}
	return l
}

// landed completes the message of n bytes that has been copied to its place.
func (p *Path) landed(l *landing, header uint64, n uint32, st datasheet.Status) {
	r, q, k := p.r, &p.Ep.Recv, p.k
	l.seg.Length = n
	l.seg.StoreStatus(st)
	l.stamp = 0
	q.Completed++
	q.Fetched++
	r.Expect++
	r.Done++
	r.Hear(&k.Clock)
	ack, credit := ahead(r.heardAck, uint16(header>>32)), ahead(r.heardCredit, uint16(header>>48))
	r.heardAck, r.heardCredit = ack, credit
	if int32(credit-r.limit) > 0 {
		r.limit = credit
		if r.stalled {
			k.Ready.Add(p.Ep)
		}
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

// polled is what poll has come to.
type polled uint8

const (
	pollNothing   polled = iota // there is nothing, nor anything else for a step to do
	pollCompleted               // something of the queue has completed
	pollOther                   // a step may do something
)

// stepEvery is after how many calls of Poll a step is due, which looks at timers and doorbells.
const stepEvery = 64

// Poll is described at vfio.Path.
func (p *Path) Poll(receive bool, most int) bool {
	p.looks++
	gate := p.Gate.Load()
	if p.looks%stepEvery == 0 || gate&GateSteps != 0 {
		return p.Step(receive && most == 1, !receive && most == 1)
	}
	if !p.Mu.TryLock() {
		return false
	}
	what := p.poll(receive, most)
	p.Mu.Unlock()
	if what == pollCompleted {
		return true
	}
	if what == pollNothing && gate&GatePair == 0 {
		return false
	}
	return p.Step(receive && most == 1, !receive && most == 1)
}

// poll takes what has come, until something of the queue has completed.
func (p *Path) poll(receive bool, most int) polled {
	k := p.k
	if k.Bells.Last.Load() != 0 {
		return pollOther
	}
	if p.r == nil || k.Events&^core.InFlight != 0 || !k.Plain || k.Rx.Held {
		return pollOther
	}
	taken, got := uint32(0), 0
	if !receive && p.head != p.next {
		if p.reap(p.sends[p.head&p.Ep.Send.Mask].mark - 1) {
			return pollCompleted
		}
		taken = p.line.Look(p.next-p.head > p.Ep.Send.Mask/2) // before the look for frames
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
				return p.receive(receive)
			}
		}
		l := to.expected(header, b, uint32(len(payload)))
		if l == nil || b&datasheet.ShortLent != 0 {
			return p.receive(receive)
		}
		st := datasheet.StatusDone | datasheet.StatusOpReceive
		if b&datasheet.ShortImmediate != 0 {
			l.seg.Immediate = b.Immediate()
			st |= datasheet.StatusImmediate
		}
		if to := bytesAt(l.memory, uint32(len(payload))); len(payload) == 64 {
			*(*[64]byte)(to) = *(*[64]byte)(payload)
		} else {
			copy(to, payload)
		}
		to.landed(l, header, uint32(len(payload)), st)
		if receive && to == p {
			got++
		}
		if p.line.Pass(got == most); got == most {
			return pollCompleted
		}
		if k.Events&^core.InFlight != 0 || n > core.WindowFrames {
			return pollOther
		}
	}
	if got != 0 || !receive && p.head != p.next && p.reap(taken) {
		return pollCompleted
	}
	return pollNothing
}

// receive does what poll does for frames of all kinds.
func (p *Path) receive(receive bool) polled {
	of := &p.Ep.Send
	if receive {
		of = &p.Ep.Recv
	}
	before := of.Completed
	if p.k.Rx.Receive(of); of.Completed == before || p.k.Events&^core.InFlight != 0 {
		return pollOther
	}
	return pollCompleted
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
		if s.stamp != k.Regions.Stamp {
			p.done(0)
		} else {
			s.seg.StoreStatus(datasheet.StatusDone | datasheet.StatusOpSend)
			p.head++
			q.Completed++
			k.Progress++
			k.Count(datasheet.CounterCompletions, 1)
			if q.Watched() {
				k.CQs.Tell(p.Ep, q, q.Completed-1, datasheet.StatusDone|datasheet.StatusOpSend)
			}
		}
		k.Count(datasheet.CounterMessagesSent, 1)
		any = true
	}
	return any
}

// done completes the oldest send.
func (p *Path) done(st datasheet.Status) {
	q, k := &p.Ep.Send, p.k
	p.head++
	l, n := core.Layout{}, uint32(0)
	l.Token, _ = k.Regions.Token(q, q.Completed)
	if seg := k.Regions.ControlAt(l.Token, p.Ep.Ptag); seg != nil && st == 0 {
		n = seg.Length
	}
	k.Complete(p.Ep, q, &l, n, 0, st)
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
		if s.lent == revoked {
			first = datasheet.StatusProtectionError
		}
		p.done(first)
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

// takePaths completes the sends of all VIs that have arrived.
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
