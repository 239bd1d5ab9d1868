package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// borrow finds the bytes that a frame refers to, of whose header r.header is a
// copy. It returns false if they are not there, or if the references cannot be.
func (r *receiver) borrow(table []byte) bool {
	h := &r.header
	if ep := r.endpoint(h.DestinationEndpoint); ep != nil && ep.reliability == datasheet.Unreliable {
		return false
	}
	if int(h.Length) > datasheet.MaxMTU-headerSize(h.Type) {
		return false
	}
	var references [datasheet.MaxReferences]datasheet.Reference
	r.references = datasheet.ReadReferences(table, h.Length, &references)
	for i, at := range references[:r.references] {
		r.lent[i] = r.lender.Borrow(at.Region, at.Offset, uint64(at.Length))
		if len(r.lent[i]) != int(at.Length) {
			return false
		}
	}
	return r.references > 0
}

// landBorrowed does what land does for a payload that was borrowed. It returns
// false if the frame is void: its sender has taken the memory back.
func (r *receiver) landBorrowed() bool {
	for _, piece := range r.lent[:r.references] {
		r.land(piece)
		r.moved += uint32(len(piece))
	}
	return r.lender.Return()
}

// ownFrame is memory of the engine for a frame that is being received. It is made once, when it is needed:
// most NICs never do.
func (r *receiver) ownFrame() []byte {
	if r.joined == nil {
		r.joined = aligned(datasheet.MaxMTU)
	}
	return r.joined
}

// expand makes the frame that is being received, whose payload was borrowed, one
// that carries it, in memory of the engine. It returns false if the frame is
// void.
func (r *receiver) expand() (frame, payload []byte, ok bool) {
	h := &r.header
	size := headerSize(h.Type)
	frame = r.ownFrame()[:size+int(h.Length)]
	payload = frame[size:]
	at := 0
	for _, piece := range r.lent[:r.references] {
		at += copy(payload[at:], piece)
	}
	// The checksum, if there was one, was the references'.
	h.Flags &^= datasheet.FrameReference | datasheet.FrameChecksum
	h.Checksum = 0
	*datasheet.HeaderAt(frame) = *h
	if h.Type.RDMA() {
		*datasheet.ExtensionAt(frame[datasheet.HeaderSize:]) = r.extension
	}
	return frame, payload, r.lender.Return()
}
