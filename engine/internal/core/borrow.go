package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// borrow finds the bytes that a frame refers to, of whose header r.header is a
// copy. It returns false if they are not there, or if the references cannot be.
func (r *Receiver) borrow(table []byte) bool {
	h := &r.Header
	if ep := r.Endpoint(h.DestinationEndpoint); ep != nil && ep.Reliability == datasheet.Unreliable {
		return false
	}
	if int(h.Length) > datasheet.MaxMTU-headerSize(h.Type) {
		return false
	}
	var references [datasheet.MaxReferences]datasheet.Reference
	r.references = datasheet.ReadReferences(table, h.Length, &references)
	for i, at := range references[:r.references] {
		r.lent[i] = r.Lender.Borrow(at.Region, at.Offset, uint64(at.Length))
		if len(r.lent[i]) != int(at.Length) {
			return false
		}
	}
	return r.references > 0
}

// landBorrowed does what land does for a payload that was borrowed. It returns
// false if the frame is void: its sender has taken the memory back.
func (r *Receiver) landBorrowed() bool {
	for _, piece := range r.lent[:r.references] {
		r.land(piece)
		r.moved += uint32(len(piece))
	}
	return r.Lender.Return()
}

// OwnFrame is memory of the engine for a frame that is being received. It is made once, when it is needed:
// most NICs never do.
func (r *Receiver) OwnFrame() []byte {
	if r.joined == nil {
		r.joined = Aligned(datasheet.MaxMTU)
	}
	return r.joined
}

// expand makes the frame that is being received, whose payload was borrowed, one
// that carries it, in memory of the engine. It returns false if the frame is
// void.
func (r *Receiver) expand() (frame, payload []byte, ok bool) {
	h := &r.Header
	size := headerSize(h.Type)
	frame = r.OwnFrame()[:size+int(h.Length)]
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
		*datasheet.ExtensionAt(frame[datasheet.HeaderSize:]) = r.Extension
	}
	return frame, payload, r.Lender.Return()
}
