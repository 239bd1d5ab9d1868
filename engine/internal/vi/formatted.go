package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What follows is Send and takeShort for kinds whose queues and messages have a format of their own. Their messages have
// the records of the long way.

// sendFormatted sends the next message that is posted, if it is in one piece of memory, fits a frame and has credit. Otherwise
// it returns false, and the message has been fetched at most.
func (p *Path) sendFormatted() bool {
	r, q, k := p.r, &p.Ep.Send, p.k
	if q.Posted() == 0 || !k.Plain || k.Tx.Held || k.Events&core.Suspended != 0 || r.broken || r.fetched ||
		r.next-r.head >= uint32(len(r.messages)) || r.head != r.next && !r.message(r.next-1).AllCut || r.serving != nil && r.serving.due() {
		return false
	}
	if credit := r.Credit(); r.tells(credit) && (int32(r.limit-r.numbered) > 0 || r.moreCredit()) {
		m := r.message(r.next)
		k.begin(p.Ep, m, r.numbered)
		n, to := m.Total, p.to
		if m.Control.Bits&datasheet.ControlImmediate != 0 {
			to = to.WithImmediate(m.Control.Immediate)
		}
		last := q.Posted() == 0
		if m.Status == 0 && n == uint32(len(m.Memory)) && n <= p.Ep.MaxPayload && m.Stamp == k.Regions.Stamp {
			header := p.peer | uint64(uint16(r.Nxt))<<16 | uint64(uint16(r.Expect))<<32 | uint64(uint16(credit))<<48
			if _, ok := p.line.Put(header, to, m.Memory, last); ok {
				if !last {
					k.Events |= core.Unflushed
				}
				r.next++
				r.numbered++
				r.stalled = false
				r.left(m)
				r.Tell(credit)
				k.Progress++
				k.Count(datasheet.CounterFramesSent, 1)
				k.Count(datasheet.CounterBytesSent, uint64(n))
				return true
			}
		}
		q.Fetched-- // it counts as posted
		r.fetched = true
	}
	return false
}

// takeFormatted takes a short frame whose payload goes to one piece of memory, as takeShort does.
func takeFormatted(c *core.Receiver, payload []byte, header uint64, b datasheet.ShortBeside) bool {
	p, n := pathOf(c.Endpoint(uint32(uint16(header)))), uint32(len(payload))
	if p == nil || p.k.format == nil || !c.Plain || b&datasheet.ShortLent != 0 || !p.isNext(header, b) || n > p.Ep.MaxTransfer || n < p.Ep.Shortest {
		return false
	}
	r, q := p.r, &p.Ep.Recv
	if q.Fetched == q.Completed {
		r.takeReceives(1)
	}
	in := r.receipt(r.Done)
	if q.Fetched == q.Completed || in.Open || in.Status != 0 || in.Stamp != c.Regions.Stamp || n > uint32(len(in.Memory)) {
		return false
	}
	copy(in.Memory, payload)
	st := datasheet.Status(0)
	if b&datasheet.ShortImmediate != 0 {
		st = datasheet.StatusImmediate
	}
	p.took(header, n)
	p.k.format.Complete(p.Ep, q, &in.Layout, n, b.Immediate(), st)
	c.Line.Pass(false)
	return true
}
