package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// borrow finds the bytes that a frame refers to, of whose header in.header is a
// copy. It returns false if they are not there, or if the references cannot be.
func (e *Engine) borrow(table []byte) bool {
	h, l := &e.in.header, &e.loan
	if ep := e.endpoint(h.DestinationEndpoint); ep != nil && ep.reliability == descriptors.Unreliable {
		return false
	}
	var references [descriptors.MaxReferences]descriptors.Reference
	l.count = descriptors.ReadReferences(table, h.Length, &references)
	for i, r := range references[:l.count] {
		l.pieces[i] = e.lender.Borrow(r.Region, r.Offset, uint64(r.Length))
		if len(l.pieces[i]) != int(r.Length) {
			return false
		}
	}
	return l.count > 0
}

// landBorrowed is land for the payload of a frame that was borrowed. It returns
// false if the frame is void: its sender has taken the memory back.
func (e *Engine) landBorrowed() bool {
	in, l := &e.in, &e.loan
	for _, piece := range l.pieces[:l.count] {
		e.land(piece)
		in.moved += uint32(len(piece))
	}
	return e.lender.Return()
}

// expand makes the frame that is being received, whose payload was borrowed, one
// that carries it, in memory of the engine. It returns false if the frame is
// void.
func (e *Engine) expand() (frame, payload []byte, ok bool) {
	h, l := &e.in.header, &e.loan
	if l.frame == nil {
		// Once: most NICs never need it.
		l.frame = aligned(descriptors.MaxMTU)
	}
	frame = l.frame[:descriptors.HeaderSize+int(h.Length)]
	payload = frame[descriptors.HeaderSize:]
	at := 0
	for _, piece := range l.pieces[:l.count] {
		at += copy(payload[at:], piece)
	}
	// The checksum, if there was one, was the references'.
	h.Flags &^= descriptors.FrameReference | descriptors.FrameChecksum
	h.Checksum = 0
	*descriptors.HeaderAt(frame) = *h
	return frame, payload, e.lender.Return()
}
