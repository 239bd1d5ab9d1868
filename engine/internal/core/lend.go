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
