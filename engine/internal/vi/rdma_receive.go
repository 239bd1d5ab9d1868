package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// target finds the memory that the peer names in an RDMA frame: extent bytes, which it
// wants to write to or to read.
func (k *Transport) target(l *core.Layout, x *datasheet.Extension, extent, tag uint32, write bool) datasheet.Status {
	l.Segments = append(l.Segments[:0], core.Segment{Address: x.Address, Handle: x.Handle, Length: extent})
	l.Total, l.At, l.Base, l.Status, l.Peer = extent, 0, 0, 0, true
	if k.Regions.Check(l, tag, write) != 0 {
		return datasheet.StatusRDMAProtection
	}
	return 0
}

// aimWrite is aim for an RDMA write, if the peer may write where it wants.
func (k *Transport) aimWrite(ep *core.Endpoint, h *datasheet.Header, in *core.Receipt) {
	in.Tabled = true
	st := in.Status
	if st == 0 {
		st = k.target(&in.Entry, &k.Rx.Extension, h.Extent, ep.Ptag, true)
	}
	k.Rx.Aim(ep, in, st)
}

// fits reports whether the place of a frame is in its message, and that not too long.
func fits(ep *core.Endpoint, h *datasheet.Header) bool {
	return uint64(h.Offset)+uint64(h.Length) <= uint64(h.Extent) && h.Extent <= ep.MaxTransfer && h.Extent >= ep.Shortest && (h.Length != 0 || h.Extent == 0)
}

// takeRDMA decides about an RDMA frame, ahead of the PSN that is expected next.
func (r *reliable) takeRDMA(h *datasheet.Header, ahead uint32) core.Verdict {
	rx := &r.nic.Rx
	switch {
	case h.Type == datasheet.FrameReadRequest:
		return r.takeRequest(h, ahead)
	case h.Type == datasheet.FrameReadResponse:
		return r.takeResponse(h)
	case r.Ep.Rights&datasheet.AccessRDMAWrite == 0, !r.follows(h, rx.Extension.Request):
		return core.Refused
	case h.Flags&datasheet.FrameImmediate != 0:
		if !r.findReceipt(h) || r.Wire != 0 && h.Offset != rx.Receipt.Received {
			return core.Refused
		}
		return core.Placing
	case !fits(r.Ep, h):
		return core.Refused
	}
	rx.Written.Status = 0
	r.nic.aimWrite(r.Ep, h, &rx.Written)
	return core.Placing
}

// follows reports whether the first frame of a write, of which this is one, is where it
// can be, and all that was sent before it is here: writes may lie one over the other, so
// they must not overtake each other. What comes too early counts as lost.
func (r *reliable) follows(h *datasheet.Header, first uint32) bool {
	return (h.Offset == 0) == (h.PSN == first) && int32(h.PSN-first) >= 0 && int32(r.Expect-first) >= 0
}

// takeRequest takes a read of the peer once all that was sent before it is here: what
// comes too early counts as lost.
func (r *reliable) takeRequest(h *datasheet.Header, ahead uint32) core.Verdict {
	e, ep := r.nic, r.Ep
	x := &e.Rx.Extension
	if r.serving == nil || ahead > 0 || h.Length != 0 || h.Offset != 0 || h.Extent > ep.MaxTransfer || x.Request != 0 {
		return core.Refused
	}
	l := &e.Rx.Written.Entry
	if e.target(l, x, h.Extent, ep.Ptag, false) != 0 {
		e.refuse(ep, h.PSN, datasheet.EventRDMAReadProtection, &l.Segments[0])
		return core.Taken
	}
	if h.Extent > 0 && !r.serve(h, l) {
		return core.Refused
	}
	r.mark(h, 0)
	if r.finishReceipts(); rel(ep) == r {
		r.Acknowledge(h.Flags&datasheet.FrameAckRequest != 0)
	}
	return core.Taken
}

// takeResponse finds the read that a response answers.
func (r *reliable) takeResponse(h *datasheet.Header) core.Verdict {
	rx := &r.nic.Rx
	x := &rx.Extension
	if h.Length == 0 || h.Flags&datasheet.FrameImmediate != 0 || x.Address != 0 || x.Handle != 0 || !fits(r.Ep, h) {
		return core.Refused
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if m.Frames != datasheet.FrameReadRequest || !m.AllCut || m.LastPSN != x.Request {
			continue
		}
		if h.Extent != m.Total || uint32(h.Length) > m.Awaits {
			return core.Refused
		}
		rx.Written.Tabled, rx.Written.Status = false, 0
		rx.Aim(r.Ep, &rx.Written, m.Status)
		rx.To, rx.Read = &m.Layout, m
		return core.Placing
	}
	return core.Refused
}

// placedRDMA takes note of an RDMA frame whose payload is where take said, if it could be
// placed.
func (r *reliable) placedRDMA(h *datasheet.Header, ahead uint32) {
	rx, ep := &r.nic.Rx, r.Ep
	in := rx.Receipt
	switch {
	case h.Type == datasheet.FrameReadResponse:
		if !r.placedResponse(rx.Read, uint32(h.Length), rx.Status) {
			return
		}
	case in.Status == 0 && rx.Status != 0:
		r.refuseWrite(h, in, ahead)
		return
	case in != &rx.Written:
		in.Take(h, rx.Status)
		in.Flags |= datasheet.StatusOpRDMAWrite
	}
	r.mark(h, ahead)
	if r.finishReceipts(); rel(ep) == r && r.Wire == 0 {
		r.AcknowledgeData(h, ahead)
	}
}

// placedResponse takes note of n more bytes of a read. It returns false if they could not
// be placed.
func (r *reliable) placedResponse(m *core.Sending, n uint32, st datasheet.Status) bool {
	if st != 0 {
		// Nothing is wrong with the messages before it.
		m.Status, r.broken = st, true
		r.nic.Conns.Fail(r.Ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
		return false
	}
	if m.Awaits -= n; m.Awaits == 0 {
		r.reading--
		r.nic.Unsettled.Add(r.Ep)
	}
	return true
}

// refuseWrite refuses a frame of an RDMA write, or the rest of one, once all that was sent
// before it is here; until then it counts as lost.
func (r *reliable) refuseWrite(h *datasheet.Header, in *core.Receipt, ahead uint32) {
	rx := &r.nic.Rx
	switch {
	case ahead > 0:
		r.nic.Count(datasheet.CounterFramesDropped, 1)
	case in == &rx.Written:
		r.nic.refuse(r.Ep, h.PSN, refusalOf(rx, h), &in.Entry.Segments[0])
	default:
		in.Take(h, datasheet.StatusRDMAProtection)
		in.Flags |= datasheet.StatusOpRDMAWrite
		r.Refused = h.PSN
		r.finishReceipts()
	}
}

// refusal returns the event for a write that is not allowed, from the frame on.
func refusalOf(r *core.Receiver, h *datasheet.Header) datasheet.EventCode {
	if h.Offset > 0 || r.Landed {
		return datasheet.EventRDMAWriteAbort
	}
	return datasheet.EventRDMAWriteProtection
}

// placedWrite takes note of a frame of a write without immediate data.
func (k Unreliable) placedWrite(ep *core.Endpoint, h *datasheet.Header, in *core.Receipt) {
	if in.Status != 0 {
		k.refused(ep, refusalOf(&k.Rx, h), &in.Entry.Segments[0])
	}
	in.Open = in.Status == 0 && in.Received != in.Extent
}

// hasReceive reports whether there is a receive for a message, ahead of the oldest that is
// not complete. If a VI has it so, the connection breaks once that is certain.
func (r *reliable) hasReceive(h *datasheet.Header, ahead uint32) bool {
	e, ep := r.nic, r.Ep
	if ahead < ep.Recv.Producer-ep.Recv.Completed {
		return true
	}
	if ep.Recv.Source != nil && r.shareUpTo(ahead) {
		return true
	}
	if ep.Options&datasheet.EndpointBreaks == 0 {
		return false // it is beyond the credit that we gave, or the shared queue is empty
	}
	if e.Bells.TakePage(ep.ID); ahead < ep.Recv.Producer-ep.Recv.Completed {
		return true
	}
	if h.PSN == r.Expect {
		e.Count(datasheet.CounterReceiveQueueEmpty, 1)
		e.Event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: ep.ID, CQ: datasheet.NoCQ})
		e.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultRemoteDescriptor, true)
	}
	return false
}
