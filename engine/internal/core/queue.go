package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// WorkQueue is one side of an endpoint: a ring of tokens in host memory. All
// counts are free-running.
type WorkQueue struct {
	IOVA      uint64
	Mask      uint32 // tokens that the ring holds, less one
	Producer  uint32 // posted by the host, as far as its doorbell says
	Fetched   uint32 // tokens that we have begun to work on
	Completed uint32
	Receive   bool
	Vector    uint16
	armed     bool
	armWord   uint32
	CQ        *completionQueue
	Tokens    []datasheet.Token // the ring, for epoch; the engine's own if iova is zero
	Epoch     uint64
	Pushed    *eager // the ring in device memory, nil without EndpointEager

	// Where the descriptor, and the payload, of a token lay that was fetched last.
	Described, Payload near

	// Of a VI that shares a receive queue: where the tokens in tokens come from.
	Source *Endpoint
	// Named says that the host has named each token, in its Flags.
	Named bool
}

// Posted is the number of tokens that wait to be fetched.
func (q *WorkQueue) Posted() uint32 { return q.Producer - q.Fetched }

// Token reads token number i of the ring, once: the host may be writing. A token
// that the bus refuses to give has a status, and names no descriptor.
func (m *Regions) Token(q *WorkQueue, i uint32) (datasheet.Token, datasheet.Status) {
	if q.Pushed != nil {
		if t, ok := m.pushedToken(q.Pushed, i&q.Mask); ok {
			return t, 0
		}
	}
	if q.Epoch == m.Epoch || m.mapRing(q) {
		return q.Tokens[i&q.Mask], 0
	}
	t := datasheet.TokensAt(m.whole(q.IOVA+uint64(i&q.Mask)*datasheet.TokenSize, datasheet.TokenSize, false))
	if t == nil {
		return datasheet.Token{}, datasheet.StatusProtectionError
	}
	return t[0], 0
}

// Mapped reports whether the tokens of a queue are in one piece, as most are.
func (m *Regions) Mapped(q *WorkQueue) bool { return q.Epoch == m.Epoch || m.mapRing(q) }

// mapRing looks up the memory of a queue's ring. It returns false if that is not
// contiguous for us.
func (m *Regions) mapRing(q *WorkQueue) bool {
	if q.IOVA == 0 { // the tokens are ours
		q.Epoch = m.Epoch
		return true
	}
	size := uint64(q.Mask+1) * datasheet.TokenSize
	w, err := m.bus.Window(q.IOVA, size, false)
	if err != nil || uint64(len(w)) < size {
		return false
	}
	q.Tokens, q.Epoch = datasheet.TokensAt(w), m.Epoch
	return true
}

// operation is that of the descriptor that a token names, without a look at the rest of it.
func (m *Regions) operation(t datasheet.Token, tag uint32) datasheet.Control {
	if seg := m.controlAt(t, tag, false); seg != nil {
		return seg.Control.Op()
	}
	return datasheet.OpSend
}

// ControlAt is the control segment that a token names, nil if it is out of reach.
func (m *Regions) ControlAt(t datasheet.Token, tag uint32) *datasheet.ControlSegment {
	return m.controlAt(t, tag, true)
}

// controlAt is the control segment in host memory that a token names, nil if it is out of reach.
func (m *Regions) controlAt(t datasheet.Token, tag uint32, write bool) *datasheet.ControlSegment {
	r, off := m.Reach(t.Handle, tag, t.Address, datasheet.ControlSegmentSize, write)
	if r == nil {
		return nil
	}
	return datasheet.ControlAt(m.Window(r, off, datasheet.ControlSegmentSize, write))
}

// Target is the memory that the address segment of an RDMA descriptor names. It stands
// behind the data segments, where it makes the layouts of sends no larger.
func (l *Layout) Target() *Segment { return &l.Segments[:len(l.Segments)+1][len(l.Segments)] }

// completionQueue is a ring of entries in host memory.
type completionQueue struct {
	id        uint32
	iova      uint64
	indexIOVA uint64
	log2      uint8
	vector    uint16
	Users     int
	Dead      bool
	armed     bool
	armWord   uint32
	producer  uint32                 // free-running
	consumer  uint32                 // our last copy of the host's index
	entries   []datasheet.Completion // nil where they are not contiguous for us
	index     *uint32
	epoch     uint64
}
