package vi

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// expected returns the receive of a short frame that stands for n bytes: its descriptor, and where they go. It returns nil
// if the frame is not the next of the connection, or its receive is not one segment with room for them.
func (p *Path) expected(header uint64, tag datasheet.ShortBeside, n uint32) (*datasheet.ControlSegment, *byte) {
	q, k := &p.Ep.Recv, p.k
	if p.k.format != nil || !p.isNext(header, tag) || q.Fetched != q.Completed || q.Producer == q.Completed || n-1 >= p.Ep.MaxTransfer || n < p.Ep.Shortest {
		return nil, nil
	}
	if q.Epoch != k.Regions.Epoch && !k.Regions.Mapped(q) || q.Pushed != nil {
		return nil, nil
	}
	i := int(q.Completed & q.Mask)
	if i >= len(q.Tokens) {
		return nil, nil
	}
	m := descriptors{&k.Regions}
	seg := m.control(p.Ep, q, &q.Tokens[i])
	if seg == nil {
		return nil, nil
	}
	room := seg.Length
	if n > room || room > k.Limits.Transfer {
		return nil, nil
	}
	_, memory := m.piece(p.Ep, q, seg, seg.Control, room)
	if memory == nil {
		return nil, nil
	}
	return seg, memory
}

// isNext reports whether a short frame is the next of the connection.
func (p *Path) isNext(header uint64, tag datasheet.ShortBeside) bool {
	r := p.r
	return r != nil && uint16(tag) == p.tag && uint16(header>>16) == uint16(r.Expect) && int32(ahead(r.heardAck, uint16(header>>32))-r.Nxt) <= 0
}

// landed completes the message of n bytes that has been copied to its place.
func (p *Path) landed(seg *datasheet.ControlSegment, header uint64, n uint32, st datasheet.Status) {
	q, k := &p.Ep.Recv, p.k
	seg.Length = n
	seg.StoreStatus(st)
	q.Completed++
	q.Fetched++
	k.Progress++
	k.Count(datasheet.CounterCompletions, 1)
	p.took(header, n)
	if q.Watched() {
		k.CQs.Tell(p.Ep, q, q.Completed-1, st)
	}
}

// took takes note of what the header of a message of n bytes says, which is in its place.
func (p *Path) took(header uint64, n uint32) {
	r, k := p.r, p.k
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
		r.Una, k.wires.heard = ack, true
	}
	if r.wants {
		r.answerCredit()
	}
	k.Handed = true
	k.Count(datasheet.CounterFramesReceived, 1)
	k.Count(datasheet.CounterBytesReceived, uint64(n))
	k.Count(datasheet.CounterMessagesReceived, 1)
}
