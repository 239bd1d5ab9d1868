package vi

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// deliveredUpTo takes the messages below number, which the peer says it has taken, and
// the operations before them for arrived. It returns false, and takes none, if they were
// not sent, or if the peer has acknowledged more.
func (r *reliable) deliveredUpTo(number uint32) bool {
	oldest, una := r.numbered, r.Una
	if r.head != r.next {
		oldest = r.message(r.head).Number
	}
	p := r.path
	if p != nil && p.head != p.next {
		oldest = p.sends[p.head&p.Ep.Send.Mask].number
	}
	if number-oldest > r.numbered-oldest {
		return false
	}
	for i := uint32(0); p != nil && p.head+i != p.next; i++ {
		s := &p.sends[(p.head+i)&p.Ep.Send.Mask]
		if int32(number-s.number) <= 0 {
			break
		}
		if int32(s.psn-una) >= 0 {
			una = s.psn + 1
		}
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if int32(number-m.Number) <= 0 {
			break
		}
		if !m.AllCut {
			return false
		}
		if int32(m.LastPSN-una) >= 0 {
			una = m.LastPSN + 1
		}
	}
	r.Una = una
	return true
}

func (k Reliable) Close(ep *core.Endpoint) {
	if r := rel(ep); r != nil && r.way != nil {
		k.wires.leave(r.way)
		if r.path != nil {
			r.path.r = nil
		}
	}
}

// Outstanding implements core.Delivery. Of operations that have not arrived, and of what has not been
// fetched, each counts as one message.
func (k Reliable) Outstanding(ep *core.Endpoint) (posted uint32, unfinished bool) {
	r := rel(ep)
	if r == nil {
		return 0, false
	}
	posted, unfinished = r.numbered+ep.Send.Posted(), ep.Send.Posted() > 0
	if p := r.path; p != nil && p.head != p.next && int32(r.Una-p.sends[(p.next-1)&ep.Send.Mask].psn) <= 0 {
		unfinished, posted = true, posted+p.writes()
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if r.arrived(m) {
			continue
		}
		unfinished = true
		if !m.TakesReceive() {
			posted++
		}
	}
	return posted, unfinished
}

func (k Reliable) Flush(ep *core.Endpoint, first datasheet.Status) {
	failed := false // behind the first that has failed no other is done, not even a read that has come
	if r := rel(ep); r != nil && r.path != nil {
		if st, ended := r.path.flush(first); ended {
			first, failed = st, true
		}
	}
	for r := rel(ep); r != nil && int32(r.next-r.head) > 0; {
		m := r.message(r.head)
		switch {
		case m.Status != 0:
			first = m.Status
		case !failed && r.arrived(m): // it has not been settled yet
			r.delivered(m)
			continue
		}
		r.head++
		ep.Kind.Format.Complete(ep, &ep.Send, &m.Layout, 0, 0, first)
		first, failed = datasheet.StatusFlushed, true
	}
}

// Revoke takes back what has been lent of a region that is no more.
func (k *Transport) Revoke(handle uint32) {
	inRegion := func(s core.Segment) bool { return s.Handle == handle }
	for _, ep := range k.Living {
		if !ep.Flow.Lending() {
			continue
		}
		if p := rel(ep).path; p != nil && p.revoke(handle) {
			continue
		}
		for r, n := rel(ep), rel(ep).head; int32(r.next-n) > 0; n++ {
			m := r.message(n)
			if m.Frames == datasheet.FrameReadRequest || !slices.ContainsFunc(m.Segments, inRegion) || r.arrived(m) {
				continue
			}
			if r.Wire == 0 {
				k.Tx.Revoke(ep.ID)
			} else {
				// It cannot be sent again, and nothing is wrong with those before it.
				m.Status, r.broken = datasheet.StatusProtectionError, true
				k.Conns.Fail(ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
			}
			break
		}
	}
}

// EndReason takes what the peer says of a connection that it has ended, and why it did. It returns
// false if that cannot be.
func (k *Transport) EndReason(ep *core.Endpoint, h *datasheet.Header, reason datasheet.Result) (datasheet.Result, bool) {
	switch r := rel(ep); {
	case !r.deliveredUpTo(h.Message):
		return reason, false
	case reason == datasheet.ResultAborted && h.Extent == r.Done:
		return datasheet.ResultSuccess, true // all that it may have cut off is here
	case reason == datasheet.ResultRDMAProtection && !r.refusedAt(h.PSN):
		return reason, false
	}
	return reason, true
}
