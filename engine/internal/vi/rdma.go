package vi

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// mayBegin reports whether m, the next message, may begin: it has credit or needs none,
// its fence is open, and there are not too many reads.
func (r *reliable) mayBegin(m *core.Sending) bool {
	bits, stalled := m.Control.Bits, r.stalled
	r.stalled = false
	switch {
	case m.Status != 0 && bits.Op() != datasheet.OpSend:
		return true // it fails
	case bits&datasheet.ControlQueueFence != 0 && r.reading > 0:
		return false
	case bits.Op() == datasheet.OpRDMARead:
		if r.reading == datasheet.MaxReads {
			return m.Total == 0
		}
		if m.Total > 0 {
			r.reading++
		}
		return true
	case stalled && r.eager:
		r.limit = r.numbered + 1<<30
		return true
	}
	r.stalled = stalled && m.TakesReceive()
	return !r.stalled
}

// serving are the reads of a peer, oldest first. Counts are free-running.
type serving struct {
	answers [datasheet.MaxReads]core.Sending
	head    uint32 // the oldest that has not been acknowledged
	sent    uint32 // the oldest that has not been sent
	next    uint32
	turn    bool // a message of the host goes first
}

func (s *serving) answer(n uint32) *core.Sending { return &s.answers[n%datasheet.MaxReads] }

func (s *serving) due() bool {
	for s.sent != s.next && s.answer(s.sent).AllCut {
		s.sent++
	}
	return s.sent != s.next
}

// answerOrNext is the message that is to send a frame when there are answers: they and
// messages of the host take turns, one at a time.
func (r *reliable) answerOrNext() *core.Sending {
	s := r.serving
	m := s.answer(s.sent)
	begun := r.head != r.next && !r.message(r.next-1).AllCut
	if m.Cut == 0 && (begun || s.turn) {
		s.turn = false
		if own := r.upNext(); own != nil || r.broken {
			return own
		}
	}
	if r.broken {
		return nil
	}
	if m.Cut == 0 {
		m.Number = r.numbered
	}
	s.turn = true
	return m
}

// serve takes note of a read that the peer asks for. It returns false if that is one too
// many.
func (r *reliable) serve(h *datasheet.Header, from *core.Layout) bool {
	s := r.serving
	for s.head != s.next && r.arrived(s.answer(s.head)) {
		s.head++
	}
	if s.next-s.head == datasheet.MaxReads {
		return false
	}
	m := s.answer(s.next)
	segments := append(m.Segments[:0], from.Segments...)
	*m = core.Sending{Layout: *from, Frames: datasheet.FrameReadResponse, Request: h.PSN, Begun: true}
	m.Segments = segments
	s.next++
	r.nic.Ready.Add(r.Ep)
	return true
}

// refusedAt takes note that the peer has refused the frame psn: what was sent before has
// arrived, and the operation that it belongs to has failed. It returns false if it has not
// been sent.
func (r *reliable) refusedAt(psn uint32) bool {
	if int32(r.Nxt-psn) <= 0 {
		return false
	}
	if r.path != nil {
		r.path.refusedAt(psn)
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if m.AllCut && int32(m.LastPSN-psn) < 0 {
			continue
		}
		if m.Frames != datasheet.FrameData && !r.arrived(m) {
			m.Status = datasheet.StatusRDMAProtection
		} // else it is a read of which the peer does not know that it has it all
		break
	}
	if int32(psn-r.Una) > 0 {
		r.Una = psn
	}
	return true
}

// refuse breaks a connection whose peer was not allowed what the frame psn wants: to
// write to what, or to read it.
func (k *Transport) refuse(ep *core.Endpoint, psn uint32, code datasheet.EventCode, what *core.Segment) {
	ep.Flow.Refused = psn
	k.refused(ep, code, what)
	k.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultRDMAProtection, true)
}

// refused reports that the peer was not allowed what it wanted.
func (k *Transport) refused(ep *core.Endpoint, code datasheet.EventCode, what *core.Segment) {
	k.Event(datasheet.Event{Code: code, Endpoint: ep.ID, CQ: datasheet.NoCQ, Detail: what.Handle, Descriptor: what.Address})
}

// DirectPerRound is after how many operations without a frame the doorbell does a round: the
// peer is to be heard, and told that this end lives.
const DirectPerRound = 32

// carry carries out m, an operation that has begun, if nothing before it is under way and the
// peer lets this end copy. It returns false if m has to go in frames.
func (r *reliable) carry(m *core.Sending) bool {
	d := &r.nic.Regions.Direct
	if !d.Open || r.Wire == 0 || r.next-r.head != 1 || r.path != nil && r.path.head != r.path.next || m.Cut != 0 && m.Frames != datasheet.FrameReadRequest ||
		m.AllCut || m.Total == 0 || m.TakesReceive() {
		return false
	}
	table := d.Port.Begin(r.Wire)
	if table == nil {
		return false
	}
	done := r.copy(table, m)
	d.Port.End()
	if !done {
		return false
	}
	if m.Frames == datasheet.FrameReadRequest {
		r.reading--
		m.Awaits = 0
	}
	m.AllCut = true
	r.nic.DirectOps++
	r.delivered(m)
	return true
}

// carryNext carries out m, the next message, which has not begun, as carry does.
func (r *reliable) carryNext(m *core.Sending) bool {
	if m.Frames == datasheet.FrameData || m.Status != 0 || r.next != r.head {
		return false
	}
	read := m.Frames == datasheet.FrameReadRequest
	if r.next++; read {
		r.reading++
	}
	if r.carry(m) {
		return true
	}
	if r.next--; read {
		r.reading--
	}
	return false
}

// ReadDirect carries out a read that was not posted, of n bytes into one piece of memory, if
// nothing that was posted is under way and the peer lets this end copy. It returns false if the
// read has to be posted.
func (k *Transport) ReadDirect(ep *core.Endpoint, from, into core.Segment) bool {
	r, d := rel(ep), &k.Regions.Direct
	if r == nil || r.Wire == 0 || r.broken || r.next != r.head || r.path != nil && r.path.head != r.path.next || ep.Send.Posted() > 0 || !d.Open || into.Length > ep.MaxTransfer {
		return false
	}
	to, off := k.Regions.Reach(into.Handle, ep.Ptag, into.Address, uint64(into.Length), true)
	if to == nil || to.Eager != nil {
		return false
	}
	w := k.Regions.Window(to, off, uint64(into.Length), true)
	table := d.Port.Begin(r.Wire)
	if table == nil {
		return false
	}
	theirs, entry := r.reach(table, from, false)
	done := len(w) == len(theirs) && copy(w, theirs) > 0 && entry.Load(from.Handle, new(datasheet.DirectRegion))
	if d.Port.End(); done {
		k.DirectOps++
		k.Count(datasheet.CounterMessagesSent, 1)
	}
	return done
}

// copy does so, after the checks that the peer's engine makes.
func (r *reliable) copy(table *datasheet.DirectTable, m *core.Sending) bool {
	at, write := m.Target(), m.Frames == datasheet.FrameWrite
	theirs, entry := r.reach(table, core.Segment{Handle: at.Handle, Address: at.Address, Length: m.Total}, write)
	if theirs == nil {
		return false
	}
	if write {
		return r.nic.Regions.Gather(theirs, &m.Layout, 0, r.Ep.Ptag) == 0
	}
	_, st := r.nic.Regions.Scatter(theirs, &m.Layout, 0, r.Ep.Ptag)
	return st == 0 && entry.Load(at.Handle, new(datasheet.DirectRegion))
}

// reach returns memory of the peer, and its place in the table; nil if this end may not use it.
func (r *reliable) reach(table *datasheet.DirectTable, at core.Segment, write bool) ([]byte, *datasheet.DirectRegion) {
	to, i := &r.Ep.Remote, at.Handle&core.RegionIndexMask
	if to.Endpoint >= datasheet.DirectEndpoints || i >= datasheet.DirectRegions || at.Handle == 0 {
		return nil, nil
	}
	word := atomic.LoadUint64(&table.Endpoints[to.Endpoint])
	entry := &table.Regions[i]
	var e datasheet.DirectRegion
	if uint32(word>>32) != to.TheirKey || !entry.Load(at.Handle, &e) || e.Ptag != uint32(word) {
		return nil, nil
	}
	right := datasheet.AccessRDMARead
	if write {
		right = datasheet.AccessRDMAWrite
	}
	off, n := at.Address-e.Address, uint64(at.Length)
	if e.Access&right == 0 || off > e.Length || n > e.Length-off || e.Offset+off < off {
		return nil, nil
	}
	return r.nic.Regions.Direct.Port.Reach(e.Memory, e.Offset+off, n, write), entry
}
