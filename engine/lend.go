package engine

import (
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// lendFrom is how many bytes a frame must stand for at least before they are lent
// instead of copied. To copy 1 KiB twice takes as long as to borrow it, and from 3
// KiB on borrowing wins in every run, between two processes on two cores: "trapeze
// bench --tests latency --wires shm,shm-share --sizes 256,512,1K,1536,2K,3K" with
// 1 here.
const lendFrom = 2048

// lends reports whether the payload of the endpoint's next frame may be lent: its
// buffers stay the NIC's until the peer has read them, and nobody wants to see
// the bytes, or to decide piece by piece when they go.
func (t *transmitter) lends(ep *endpoint) bool {
	return t.lender != nil && ep.flow != nil && !t.checksum && t.hooks&(filterTransmit|watching) == 0 && t.dma.movers[Transmit].Plain()
}

// sendLent is sendData for a frame of n bytes that go as references. It answers
// frameCopied, and nothing has happened, if they have to go as they are.
func (t *transmitter) sendLent(ep *endpoint, m *sending, psn, offset, n uint32, flags datasheet.FrameFlags, behind int, again bool) outcome {
	count, st := t.refer(&m.layout, offset, n, ep.ptag)
	switch {
	case st != 0:
		ep.delivery.failed(ep, m, again, st)
		return frameFailed
	case count == 0:
		return frameCopied
	}
	at := headerSize(m.frames)
	buf := t.reserve(&ep.remote.mac, at+count*datasheet.ReferenceSize)
	if buf == nil {
		return frameWaiting
	}
	if !t.dma.movers[Transmit].Whole(int(n), behind) {
		return frameCopied
	}
	credit := head(buf, ep, m, psn, offset, n, flags|datasheet.FrameReference)
	copy(datasheet.ReferencesAt(buf[at:]), t.references[:count])
	t.handOver(int(n))
	t.lender.Lent(ep.id)
	if r := ep.flow; int32(psn-r.lent) >= 0 {
		r.lent = psn + 1
	}
	ep.delivery.sent(ep, m, psn, offset, n, credit, again)
	return frameSent
}

// refer is gather for bytes that are lent: with the same checks it finds n bytes
// of a message, from offset on, and where the peer finds them. The count of
// references is 0 if the peer does not find all of them, or only with too many
// references.
func (t *transmitter) refer(l *layout, offset, n, tag uint32) (count int, st datasheet.Status) {
	if l.eager&eagerData != 0 {
		// The peer does not find what the NIC has of it.
		w := t.regions.unpushed(l, offset, n)
		if w == nil {
			return 0, 0
		}
		id, at, ok := t.lender.Lend(w)
		if !ok {
			return 0, 0
		}
		t.references[0] = datasheet.Reference{Region: id, Length: n, Offset: at}
		return 1, 0
	}
	for ; n > 0; count++ {
		w, st := t.regions.next(l, offset, int(n), tag, false)
		if st != 0 {
			return 0, st
		}
		if count == len(t.references) {
			return 0, 0
		}
		id, at, ok := t.lender.Lend(w)
		if !ok {
			return 0, 0
		}
		t.references[count] = datasheet.Reference{Region: id, Length: uint32(len(w)), Offset: at}
		offset, n = offset+uint32(len(w)), n-uint32(len(w))
	}
	return count, 0
}
