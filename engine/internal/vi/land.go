package vi

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// expected returns the receive of a short frame that stands for n bytes: its descriptor, and where they go. It returns nil
// if the frame is not the next of the connection, or its receive is not one segment with room for them.
func (p *Path) expected(header uint64, tag datasheet.ShortBeside, n uint32) (*datasheet.ControlSegment, *byte) {
	q, k := &p.Ep.Recv, p.k
	if p.sends == nil || !p.isNext(header, tag) || q.Fetched != q.Completed || q.Producer == q.Completed || n-1 >= p.Ep.MaxTransfer || n < p.Ep.Shortest {
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
	p.r.Done++
	k.Count(datasheet.CounterCompletions, 1)
	p.took(header, n)
	k.Delivered = true
	k.Count(datasheet.CounterMessagesReceived, 1)
	if q.Watched() {
		k.CQs.Tell(p.Ep, q, q.Completed-1, st)
	}
}

// target returns where the n bytes of an RDMA write go, a short frame whose payload begins with an extension. It returns nil
// unless the frame is the next of the connection, and its place in one piece of memory that the peer may write to.
func (p *Path) target(payload []byte, header uint64, b datasheet.ShortBeside, n uint32) []byte {
	if p.sends == nil || !p.isNext(header, b) || b&datasheet.ShortImmediate != 0 || p.Ep.Rights&datasheet.AccessRDMAWrite == 0 || n-1 >= p.Ep.MaxTransfer || n < p.Ep.Shortest {
		return nil
	}
	x := *datasheet.ExtensionAt(payload) // read once: the peer may be able to write it
	if x.Request != p.r.Expect {
		return nil
	}
	return p.k.Regions.Target(x.Handle, p.Ep.Ptag, x.Address, uint64(n))
}

// written carries out an RDMA write of the peer's whose bytes are in the frame. It returns false, and nothing
// has happened, if that is not the next frame, or the peer may not write there.
func (p *Path) written(payload []byte, header uint64, b datasheet.ShortBeside) bool {
	n := uint32(len(payload) - datasheet.ExtensionSize)
	if len(payload) <= datasheet.ExtensionSize {
		return false
	}
	to := p.target(payload, header, b, n)
	if to == nil {
		return false
	}
	copy(to, payload[datasheet.ExtensionSize:])
	p.took(header, n)
	return true
}

// took takes note of what the header of a message of n bytes says, which is in its place.
func (p *Path) took(header uint64, n uint32) {
	r, k := p.r, p.k
	r.Expect++
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
	k.Progress++
	k.Count(datasheet.CounterFramesReceived, 1)
	k.Count(datasheet.CounterBytesReceived, uint64(n))
}
