package engine

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// mayBegin reports whether m, the next message, may begin: it has credit or needs none,
// its fence is open, and there are not too many reads.
func (r *reliable) mayBegin(m *sending) bool {
	bits, stalled := m.control.bits, r.stalled
	r.stalled = false
	switch {
	case m.status != 0 && bits.Op() != datasheet.OpSend:
		return true // it fails
	case bits&datasheet.ControlQueueFence != 0 && r.reading > 0:
		return false
	case bits.Op() == datasheet.OpRDMARead:
		if r.reading == datasheet.MaxReads {
			return m.total == 0
		}
		if m.total > 0 {
			r.reading++
		}
		return true
	case stalled && r.eager:
		r.limit = r.numbered + 1<<30
		return true
	}
	r.stalled = stalled && m.takesReceive()
	return !r.stalled
}

// serving are the reads of a peer, oldest first. Counts are free-running.
type serving struct {
	answers [datasheet.MaxReads]sending
	head    uint32 // the oldest that has not been acknowledged
	sent    uint32 // the oldest that has not been sent
	next    uint32
	turn    bool // a message of the host goes first
}

func (s *serving) answer(n uint32) *sending { return &s.answers[n%datasheet.MaxReads] }

// due reports whether there is something to send.
func (s *serving) due() bool {
	for s.sent != s.next && s.answer(s.sent).allCut {
		s.sent++
	}
	return s.sent != s.next
}

// answerOrNext is the message that is to send a frame when there are answers: they and
// messages of the host take turns, one at a time.
func (r *reliable) answerOrNext() *sending {
	s := r.serving
	m := s.answer(s.sent)
	begun := r.head != r.next && !r.message(r.next-1).allCut
	if m.cut == 0 && (begun || s.turn) {
		s.turn = false
		if own := r.upNext(); own != nil || r.broken {
			return own
		}
	}
	if r.broken {
		return nil
	}
	if m.cut == 0 {
		m.number = r.numbered
	}
	s.turn = true
	return m
}

// serve takes note of a read that the peer asks for. It returns false if that is one too
// many.
func (r *reliable) serve(h *datasheet.Header, from *layout) bool {
	s := r.serving
	for s.head != s.next && r.arrived(s.answer(s.head)) {
		s.head++
	}
	if s.next-s.head == datasheet.MaxReads {
		return false
	}
	m := s.answer(s.next)
	segments := append(m.segments[:0], from.segments...)
	*m = sending{layout: *from, frames: datasheet.FrameReadResponse, request: h.PSN, begun: true}
	m.segments = segments
	s.next++
	r.nic.ready.add(r.ep)
	return true
}

// refusedAt takes note that the peer has refused the frame psn: what was sent before has
// arrived, and the operation that it belongs to has failed. It returns false if it has not
// been sent.
func (r *reliable) refusedAt(psn uint32) bool {
	if int32(r.nxt-psn) <= 0 {
		return false
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if m.allCut && int32(m.lastPSN-psn) < 0 {
			continue
		}
		if m.frames != datasheet.FrameData && !r.arrived(m) {
			m.status = datasheet.StatusRDMAProtection
		} // else it is a read of which the peer does not know that it has it all
		break
	}
	if int32(psn-r.una) > 0 {
		r.una = psn
	}
	return true
}

// refuse breaks a connection whose peer was not allowed what the frame psn wants: to
// write to what, or to read it.
func (k *transport) refuse(ep *endpoint, psn uint32, code datasheet.EventCode, what *segment) {
	ep.flow.refused = psn
	k.refused(ep, code, what)
	k.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultRDMAProtection, true)
}

// refused reports that the peer was not allowed what it wanted.
func (k *transport) refused(ep *endpoint, code datasheet.EventCode, what *segment) {
	k.event(datasheet.Event{Code: code, Endpoint: ep.id, CQ: datasheet.NoCQ, Detail: what.handle, Descriptor: what.address})
}

// carriedPerRound is after how many operations without a frame the doorbell does a round: the
// peer is to be heard, and told that this end lives.
const carriedPerRound = 32

// carry carries out m, an operation that has begun, if nothing before it is under way and the
// peer lets this end copy. It returns false if m has to go in frames.
func (r *reliable) carry(m *sending) bool {
	d := &r.nic.regions.direct
	if !d.open || r.wire == 0 || r.next-r.head != 1 || m.cut != 0 && m.frames != datasheet.FrameReadRequest ||
		m.allCut || m.total == 0 || m.takesReceive() {
		return false
	}
	table := d.port.Begin(r.wire)
	if table == nil {
		return false
	}
	done := r.copy(table, m)
	d.port.End()
	if !done {
		return false
	}
	if m.frames == datasheet.FrameReadRequest {
		r.reading--
		m.awaits = 0
	}
	m.allCut = true
	r.nic.carried++
	r.delivered(m)
	return true
}

// copy does so, after the checks that the peer's engine makes.
func (r *reliable) copy(table *datasheet.DirectTable, m *sending) bool {
	to, at, ep := &r.ep.remote, m.target(), r.ep
	i := at.handle & regionIndexMask
	if to.endpoint >= datasheet.DirectEndpoints || i >= datasheet.DirectRegions || at.handle == 0 {
		return false
	}
	word := atomic.LoadUint64(&table.Endpoints[to.endpoint])
	entry := &table.Regions[i]
	var e datasheet.DirectRegion
	if uint32(word>>32) != to.theirKey || !entry.Load(at.handle, &e) || e.Ptag != uint32(word) {
		return false
	}
	write := m.frames == datasheet.FrameWrite
	right := datasheet.AccessRDMARead
	if write {
		right = datasheet.AccessRDMAWrite
	}
	off, n := at.address-e.Address, uint64(m.total)
	if e.Access&right == 0 || off > e.Length || n > e.Length-off || e.Offset+off < off {
		return false
	}
	theirs := r.nic.regions.direct.port.Reach(e.Memory, e.Offset+off, n, write)
	if theirs == nil {
		return false
	}
	if write {
		return r.nic.regions.gather(theirs, &m.layout, 0, ep.ptag) == 0
	}
	_, st := r.nic.regions.scatter(theirs, &m.layout, 0, ep.ptag)
	return st == 0 && entry.Load(at.handle, &e)
}
