package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// workQueue is one side of an endpoint: a ring of tokens in host memory. All
// counts are free-running.
type workQueue struct {
	iova      uint64
	mask      uint32 // tokens that the ring holds, less one
	producer  uint32 // posted by the host, as far as its doorbell says
	fetched   uint32 // tokens that we have begun to work on
	completed uint32
	receive   bool
	vector    uint16
	armed     bool
	armWord   uint32
	cq        *completionQueue
	tokens    []datasheet.Token // the ring, for epoch; the engine's own if iova is zero
	epoch     uint64
	pushed    *eager // the ring in device memory, nil without EndpointEager

	// Where the descriptor, and the payload, of a token lay that was fetched last.
	described, paid near

	// Of a VI that shares a receive queue: where the tokens in tokens come from.
	source *endpoint
	// named says that the host has named each token, in its Flags.
	named bool
}

// posted is the number of tokens that wait to be fetched.
func (q *workQueue) posted() uint32 { return q.producer - q.fetched }

// token reads token number i of the ring, once: the host may be writing. A token
// that the bus refuses to give has a status, and names no descriptor.
func (m *regions) token(q *workQueue, i uint32) (datasheet.Token, datasheet.Status) {
	if q.pushed != nil {
		if t, ok := m.pushedToken(q.pushed, i&q.mask); ok {
			return t, 0
		}
	}
	if q.epoch == m.epoch || m.mapRing(q) {
		return q.tokens[i&q.mask], 0
	}
	t := datasheet.TokensAt(m.whole(q.iova+uint64(i&q.mask)*datasheet.TokenSize, datasheet.TokenSize, false))
	if t == nil {
		return datasheet.Token{}, datasheet.StatusProtectionError
	}
	return t[0], 0
}

// mapRing looks up the memory of a queue's ring. It returns false if that is not
// contiguous for us.
func (m *regions) mapRing(q *workQueue) bool {
	if q.iova == 0 { // the tokens are ours
		q.epoch = m.epoch
		return true
	}
	size := uint64(q.mask+1) * datasheet.TokenSize
	w, err := m.bus.Window(q.iova, size, false)
	if err != nil || uint64(len(w)) < size {
		return false
	}
	q.tokens, q.epoch = datasheet.TokensAt(w), m.epoch
	return true
}

// operation is that of the descriptor that a token names, without a look at the rest of it.
func (m *regions) operation(t datasheet.Token, tag uint32) datasheet.Control {
	r, off := m.reach(t.Handle, tag, t.Address, datasheet.ControlSegmentSize, false)
	if r == nil {
		return datasheet.OpSend
	}
	seg := datasheet.ControlAt(m.window(r, off, datasheet.ControlSegmentSize, false))
	if seg == nil {
		return datasheet.OpSend
	}
	return seg.Control.Op()
}

// target is the memory that the address segment of an RDMA descriptor names. It stands
// behind the data segments, where it makes the layouts of sends no larger.
func (l *layout) target() *segment { return &l.segments[:len(l.segments)+1][len(l.segments)] }
