package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// target finds the memory that the peer names in an RDMA frame: extent bytes, which it
// wants to write to or to read.
func (k *transport) target(l *layout, x *datasheet.Extension, extent, tag uint32, write bool) datasheet.Status {
	l.segments = append(l.segments[:0], segment{x.Address, x.Handle, extent})
	l.total, l.at, l.base, l.status, l.peer = extent, 0, 0, 0, true
	if k.regions.check(l, tag, write) != 0 {
		return datasheet.StatusRDMAProtection
	}
	return 0
}

// aimWrite is aim for an RDMA write, if the peer may write where it wants.
func (k *transport) aimWrite(ep *endpoint, h *datasheet.Header, in *receipt) {
	in.tabled = true
	st := in.status
	if st == 0 {
		st = k.target(&in.entry, &k.rx.extension, h.Extent, ep.ptag, true)
	}
	k.rx.aim(ep, in, st)
}

// fits reports whether the place of a frame is in its message, and that not too long.
func fits(ep *endpoint, h *datasheet.Header) bool {
	return uint64(h.Offset)+uint64(h.Length) <= uint64(h.Extent) && h.Extent <= ep.maxTransfer && h.Extent >= ep.shortest && (h.Length != 0 || h.Extent == 0)
}

// takeRDMA decides about an RDMA frame, ahead of the PSN that is expected next.
func (r *reliable) takeRDMA(h *datasheet.Header, ahead uint32) verdict {
	rx := &r.nic.rx
	switch {
	case h.Type == datasheet.FrameReadRequest:
		return r.takeRequest(h, ahead)
	case h.Type == datasheet.FrameReadResponse:
		return r.takeResponse(h)
	case r.ep.rights&datasheet.AccessRDMAWrite == 0, !r.follows(h, rx.extension.Request):
		return refused
	case h.Flags&datasheet.FrameImmediate != 0:
		if !r.findReceipt(h) || r.wire != 0 && h.Offset != rx.receipt.received {
			return refused
		}
		return placing
	case !fits(r.ep, h):
		return refused
	}
	rx.written.status = 0
	r.nic.aimWrite(r.ep, h, &rx.written)
	return placing
}

// follows reports whether the first frame of a write, of which this is one, is where it
// can be, and all that was sent before it is here: writes may lie one over the other, so
// they must not overtake each other. What comes too early counts as lost.
func (r *reliable) follows(h *datasheet.Header, first uint32) bool {
	return (h.Offset == 0) == (h.PSN == first) && int32(h.PSN-first) >= 0 && int32(r.expect-first) >= 0
}

// takeRequest takes a read of the peer once all that was sent before it is here: what
// comes too early counts as lost.
func (r *reliable) takeRequest(h *datasheet.Header, ahead uint32) verdict {
	e, ep := r.nic, r.ep
	x := &e.rx.extension
	if r.serving == nil || ahead > 0 || h.Length != 0 || h.Offset != 0 || h.Extent > ep.maxTransfer || x.Request != 0 {
		return refused
	}
	l := &e.rx.written.entry
	if e.target(l, x, h.Extent, ep.ptag, false) != 0 {
		e.refuse(ep, h.PSN, datasheet.EventRDMAReadProtection, &l.segments[0])
		return taken
	}
	if h.Extent > 0 && !r.serve(h, l) {
		return refused
	}
	r.mark(h, 0)
	if r.finishReceipts(); rel(ep) == r {
		r.acknowledge(h.Flags&datasheet.FrameAckRequest != 0)
	}
	return taken
}

// takeResponse finds the read that a response answers.
func (r *reliable) takeResponse(h *datasheet.Header) verdict {
	rx := &r.nic.rx
	x := &rx.extension
	if h.Length == 0 || h.Flags&datasheet.FrameImmediate != 0 || x.Address != 0 || x.Handle != 0 || !fits(r.ep, h) {
		return refused
	}
	for n := r.head; n != r.next; n++ {
		m := r.message(n)
		if m.frames != datasheet.FrameReadRequest || !m.allCut || m.lastPSN != x.Request {
			continue
		}
		if h.Extent != m.total || uint32(h.Length) > m.awaits {
			return refused
		}
		rx.written.tabled, rx.written.status = false, 0
		rx.aim(r.ep, &rx.written, m.status)
		rx.to, rx.read = &m.layout, m
		return placing
	}
	return refused
}

// placedRDMA takes note of an RDMA frame whose payload is where take said, if it could be
// placed.
func (r *reliable) placedRDMA(h *datasheet.Header, ahead uint32) {
	rx, ep := &r.nic.rx, r.ep
	in := rx.receipt
	switch {
	case h.Type == datasheet.FrameReadResponse:
		if !r.placedResponse(rx.read, uint32(h.Length), rx.status) {
			return
		}
	case in.status == 0 && rx.status != 0:
		r.refuseWrite(h, in, ahead)
		return
	case in != &rx.written:
		in.take(h, rx.status)
		in.flags |= datasheet.StatusOpRDMAWrite
	}
	r.mark(h, ahead)
	if r.finishReceipts(); rel(ep) == r && r.wire == 0 {
		r.acknowledgeData(h, ahead)
	}
}

// placedResponse takes note of n more bytes of a read. It returns false if they could not
// be placed.
func (r *reliable) placedResponse(m *sending, n uint32, st datasheet.Status) bool {
	if st != 0 {
		// Nothing is wrong with the messages before it.
		m.status, r.broken = st, true
		r.nic.conns.fail(r.ep, datasheet.StatusFlushed, datasheet.ResultDescriptor, true)
		return false
	}
	if m.awaits -= n; m.awaits == 0 {
		r.reading--
		r.nic.unsettled.add(r.ep)
	}
	return true
}

// refuseWrite refuses a frame of an RDMA write, or the rest of one, once all that was sent
// before it is here; until then it counts as lost.
func (r *reliable) refuseWrite(h *datasheet.Header, in *receipt, ahead uint32) {
	rx := &r.nic.rx
	switch {
	case ahead > 0:
		r.nic.count(datasheet.CounterFramesDropped, 1)
	case in == &rx.written:
		r.nic.refuse(r.ep, h.PSN, refusalOf(rx, h), &in.entry.segments[0])
	default:
		in.take(h, datasheet.StatusRDMAProtection)
		in.flags |= datasheet.StatusOpRDMAWrite
		r.refused = h.PSN
		r.finishReceipts()
	}
}

// refusal is what is reported of a write that is not allowed, from the frame on.
func refusalOf(r *receiver, h *datasheet.Header) datasheet.EventCode {
	if h.Offset > 0 || r.landed {
		return datasheet.EventRDMAWriteAbort
	}
	return datasheet.EventRDMAWriteProtection
}

// placedWrite takes note of a frame of a write without immediate data.
func (k unreliableVI) placedWrite(ep *endpoint, h *datasheet.Header, in *receipt) {
	if in.status != 0 {
		k.refused(ep, refusalOf(&k.rx, h), &in.entry.segments[0])
	}
	in.open = in.status == 0 && in.received != in.extent
}

// hasReceive reports whether there is a receive for a message, ahead of the oldest that is
// not complete. If a VI has it so, the connection breaks once that is certain.
func (r *reliable) hasReceive(h *datasheet.Header, ahead uint32) bool {
	e, ep := r.nic, r.ep
	if ahead < ep.recv.producer-ep.recv.completed {
		return true
	}
	if ep.recv.source != nil && r.shareUpTo(ahead) {
		return true
	}
	if ep.options&datasheet.EndpointBreaks == 0 {
		return false // it is beyond the credit that we gave, or the shared queue is empty
	}
	if e.bells.takePage(ep.id); ahead < ep.recv.producer-ep.recv.completed {
		return true
	}
	if h.PSN == r.expect {
		e.count(datasheet.CounterReceiveQueueEmpty, 1)
		e.event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: ep.id, CQ: datasheet.NoCQ})
		e.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultRemoteDescriptor, true)
	}
	return false
}
