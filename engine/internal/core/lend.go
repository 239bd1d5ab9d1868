package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// LendFrom is the least number of bytes of a frame that are lent
// instead of copied. To copy 1 KiB twice takes as long as to borrow it, and from 3
// KiB on borrowing wins in every run, between two processes on two cores: "trapeze
// bench --tests latency --wires shm,shm-share --sizes 256,512,1K,1536,2K,3K" with
// 1 here.
const LendFrom = 2048

// Lends reports whether the payload of the endpoint's next frame may be lent: its
// buffers stay the NIC's until the peer has read them, and no program or log wants to see
// the bytes, or to decide piece by piece when they go.
func (t *Transmitter) Lends(ep *Endpoint) bool {
	return t.Lender != nil && ep.Flow != nil && !t.Checksum && t.Hooks&(filterTransmit|Watching) == 0 && t.DMA.Movers[Transmit].Plain()
}

// sendLent is sendData for a frame of n bytes that go as references. It answers
// frameCopied, and nothing has happened, if they have to go as they are.
func (t *Transmitter) sendLent(ep *Endpoint, m *Sending, psn, offset, n uint32, flags datasheet.FrameFlags, behind int, retry bool) Outcome {
	count, st := t.refer(&m.Layout, offset, n, ep.Ptag)
	switch {
	case st != 0:
		ep.Delivery.Failed(ep, m, retry, st)
		return FrameFailed
	case count == 0:
		return frameCopied
	}
	at := headerSize(m.Frames)
	buf := t.Reserve(&ep.Remote.MAC, at+count*datasheet.ReferenceSize)
	if buf == nil {
		return FrameWaiting
	}
	if !t.DMA.Movers[Transmit].Whole(int(n), behind) {
		return frameCopied
	}
	credit := Head(buf, ep, m, psn, offset, n, flags|datasheet.FrameReference)
	copy(datasheet.ReferencesAt(buf[at:]), t.References[:count])
	t.HandOver(int(n))
	t.Lender.Lent(ep.ID)
	if r := ep.Flow; int32(psn-r.Lent) >= 0 {
		r.Lent = psn + 1
	}
	ep.Delivery.Sent(ep, m, psn, offset, n, credit, retry)
	return FrameSent
}

// refer is gather for bytes that are lent: with the same checks it finds n bytes
// of a message, from offset on, and where the peer finds them. The count of
// references is 0 if the peer does not find all of them, or only with too many
// references.
func (t *Transmitter) refer(l *Layout, offset, n, tag uint32) (count int, st datasheet.Status) {
	for ; n > 0; count++ {
		var w []byte
		if l.Eager&eagerData != 0 {
			w = t.Regions.unpushed(l, offset, n) // all of it: the peer does not find what the NIC has
		} else if w, st = t.Regions.next(l, offset, int(n), tag, false); st != 0 {
			return 0, st
		}
		if w == nil || count == len(t.References) {
			return 0, 0
		}
		id, at, ok := t.Lender.Lend(w)
		if !ok {
			return 0, 0
		}
		t.References[count] = datasheet.Reference{Region: id, Length: uint32(len(w)), Offset: at}
		offset, n = offset+uint32(len(w)), n-uint32(len(w))
	}
	return count, 0
}

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
