package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Receiver takes frames off the wire and places their payloads.
type Receiver struct {
	*Core
	// demultiplex gives a sound frame to its receiver.
	demultiplex func(h *datasheet.Header, payload []byte) Verdict
	// Short takes a short frame, raw one of another protocol.
	Short func(r *Receiver, payload []byte, header uint64, b datasheet.ShortBeside)
	Raw   func(r *Receiver, frame []byte)
	// Copied says that the frame in hand is a copy of a short one, which the line still has.
	Copied bool

	box *inbox // nil where transfers take no time
	incoming
	placement
	// lent are the bytes that the frame refers to, if it does not carry its payload.
	lent       [datasheet.MaxReferences][]byte
	references int // how many of lent there are
	// joined takes a frame whose bytes are needed in one place; nil until one is. See ownFrame.
	joined []byte
	// Behind says that the last round left frames on the wire.
	Behind bool
	// Written is an RDMA write that takes no receive, while a frame of it is placed.
	Written Receipt
}

func newReceiver(c *Core, p *Pipeline, demultiplex func(h *datasheet.Header, payload []byte) Verdict) Receiver {
	r := Receiver{Core: c, demultiplex: demultiplex}
	if c.Timed {
		r.box = newInbox(c, p.Buffers)
	}
	return r
}

// setMemory gives the NIC a buffer for frames with payload that arrive.
func (r *Receiver) setMemory(buffer int, memory []byte) { r.box.payloads[buffer] = memory }

// Verdict on a frame by its header.
type Verdict int

const (
	Refused Verdict = iota // no endpoint wants it
	Taken                  // there is nothing else to do
	Placing                // its payload is to be placed: the kind has called receiver.aim
)

// Receive takes frames off the wire, until one has completed something of queue of. It reports whether
// there were any.
func (r *Receiver) Receive(of *WorkQueue) bool {
	r.Behind = true
	if r.Waiting&receiveHooks != 0 {
		return false
	}
	if r.box != nil {
		return r.receiveBuffered(of)
	}
	any, before := false, of.Completed
	for range receiveBudget {
		if of.Completed != before && r.Lossless != nil {
			// The host goes first. If it does not look again, the peer is to know what it has.
			r.Lossless.Free()
			return any
		}
		if r.Events&CellsFirst != 0 {
			return any // what is to be stored goes first
		}
		if r.Held {
			any = r.resume() || any
			if r.Held {
				return any
			}
			continue
		}
		if r.Shorts != nil {
			if payload, header, b, found := r.Shorts.Next(); found == FoundShort {
				any = true
				r.Short(r, payload, header, b)
				continue
			}
		}
		buf := r.Port.Receive()
		if buf == nil {
			r.Behind = false
			return any
		}
		any = true
		if r.progressive != nil {
			if n, aborted := r.progressive.Arrived(); n != len(buf) || aborted {
				r.Held, r.buf, r.seen, r.judged, r.grew = true, buf, 0, false, r.Present()
				continue
			}
		}
		r.TakeFrame(buf)
	}
	return any
}

// receiveBuffered is Receive where transfers take their time.
func (r *Receiver) receiveBuffered(of *WorkQueue) (any bool) {
	before := of.Completed
	for range receiveBudget {
		any = r.box.fill() || any
		if of.Completed != before || r.Events&CellsFirst != 0 {
			return any
		}
		f := r.box.oldest()
		switch {
		case f == nil:
			r.Behind = false
			return any
		case r.Held:
			if any = r.resume() || any; r.Held {
				return any
			}
		case f.seen == len(f.buf):
			any = true
			r.TakeFrame(f.buf)
		default:
			r.Held, r.buf, r.seen, r.judged = true, f.buf, 0, false
		}
	}
	return any
}

// TakeFrame handles a frame that has arrived whole.
func (r *Receiver) TakeFrame(buf []byte) {
	r.Held, r.Entry, r.Unanswered = false, nil, false
	payload, ok := r.accept(buf)
	if ok && r.Header.Flags&datasheet.FrameReference != 0 {
		if ok = r.borrow(payload); ok && r.Hooks&ArriveWhole != 0 {
			buf, payload, ok = r.expand()
		}
	}
	if r.Hooks&Watching != 0 {
		r.Show(false, buf)
	}
	if !ok && IsRaw(buf) {
		r.Raw(r, buf)
		return
	}
	v := Refused
	if ok {
		r.CountReceived(int(r.Header.Length))
		if r.Hooks&WholeFrames != 0 {
			payload, ok = r.steer(buf, payload)
		}
	}
	if ok {
		v = r.demultiplex(&r.Header, payload)
	}
	r.Deliver(buf, payload, v)
}

// Deliver ends a frame that has arrived whole and been judged, unless the host
// decides when its payload moves.
func (r *Receiver) Deliver(buf, payload []byte, v Verdict) {
	refers := r.Header.Flags&datasheet.FrameReference != 0
	switch v {
	case Refused:
		r.Refuse()
	case Placing:
		r.moved, r.Landed = 0, false
		if r.whole(int(r.Header.Length)) {
			if !refers {
				r.land(payload)
			} else if !r.landBorrowed() {
				r.Refuse()
				break
			}
			r.advance(r.Header.Offset, uint32(r.Header.Length))
			r.ep.Delivery.Placed(r.ep, &r.Header)
			break
		}
		if refers {
			var ok bool
			if buf, payload, ok = r.expand(); !ok {
				r.Refuse()
				break
			}
		}
		r.buf, r.seen, r.judged = buf, len(buf), true
		if r.startPlacing(payload); r.box == nil {
			_ = r.DMA.Movers[Receive].Arrived(len(payload)) // all of it, once
		}
		if !r.place() {
			r.Held = true
			r.DMA.report(Receive)
			return
		}
	}
	r.Release(buf)
}

// whole reports whether the payload of the frame in hand, n bytes, goes to host memory at once: one that a program
// has made longer or shorter than the DMA engines take it for does, too.
func (r *Receiver) whole(n int) bool {
	switch {
	case n == 0:
		return true
	case r.box != nil:
		return n != r.box.oldest().payload
	}
	return r.DMA.Movers[Receive].Whole(n, r.queued())
}

// Refuse drops a frame. On a wire that loses nothing none is sent again: it is the end
// of the connection that it is of.
func (r *Receiver) Refuse() {
	r.Count(datasheet.CounterFramesDropped, 1)
	ep, h := r.Endpoint(r.Header.DestinationEndpoint), &r.Header
	if ep != nil && ep.Flow != nil && ep.Flow.Wire != 0 && (h.Type == datasheet.FrameData || h.Type.RDMA()) && ep.From(h) {
		r.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
	}
}

// Release gives a frame back to the wire, and reports whether it has. If its connection is
// no more the peer is told first, for which there may be no room yet: then the frame stays.
func (r *Receiver) Release(buf []byte) bool {
	if (r.Lossless != nil || r.Peers != nil) && !r.told() {
		if !r.rejectPending {
			r.Held, r.buf, r.seen, r.judged, r.rejectPending, r.grew = true, buf, len(buf), true, true, r.Present()
		}
		timeout := r.Timing.Dead
		if r.Peers != nil {
			timeout /= DeadProbes // the frames of others wait
		}
		if r.Present()-r.grew <= timeout {
			return false
		}
		// The peer takes nothing, perhaps since it waits as this end does.
		if w := r.WayTo(r.Header.Source); w != nil {
			w.Break()
		}
	}
	r.rejectPending, r.Held = false, false
	r.giveBack()
	return true
}

// giveBack gives the frame in hand back to the wire.
func (r *Receiver) giveBack() {
	if r.Copied {
		r.Copied = false
		r.Shorts.Pass(false)
		return
	}
	if r.box != nil {
		r.box.pop()
		return
	}
	r.Port.Release()
}

// told reports whether the peer has been told if the frame's connection is no more. One from which
// frames may be lost is not waited for.
func (r *Receiver) told() bool {
	ep := r.Endpoint(r.Header.DestinationEndpoint)
	if ep != nil && ep.ended.due && ep.ended.MAC == r.Header.Source {
		return r.Wire(r.Header.Source) == 0
	}
	r.Unanswered = r.Unanswered && !r.Conns.AnswerUnknown(ep, &r.Header)
	return !r.Unanswered || r.Wire(r.Header.Source) == 0
}

// CountReceived counts a frame that stands for n bytes of payload.
func (r *Receiver) CountReceived(n int) {
	r.Count(datasheet.CounterFramesReceived, 1)
	r.Count(datasheet.CounterBytesReceived, uint64(n))
}

// accept checks a frame that has arrived whole and copies its header out.
func (r *Receiver) accept(buf []byte) (payload []byte, ok bool) {
	on := datasheet.HeaderAt(buf)
	if on == nil {
		r.Header = datasheet.Header{} // not that of the frame before
		return nil, false
	}
	h := &r.Header
	*h = *on
	refers := h.Flags&datasheet.FrameReference != 0
	if !wellFormed(h, len(buf)) || !r.extend(buf) ||
		refers && (r.Lender == nil || h.Type != datasheet.FrameData && h.Type != datasheet.FrameWrite) {
		return nil, false
	}
	size := headerSize(h.Type)
	if !refers {
		buf = buf[:size+int(h.Length)]
	}
	checked := h.Flags&datasheet.FrameChecksum != 0
	if !checked && r.Checksum || checked && datasheet.FrameChecksumOf(buf) != h.Checksum {
		r.Count(datasheet.CounterChecksumErrors, 1)
		return nil, false
	}
	return buf[size:], h.Destination == r.MAC || h.Destination == datasheet.Broadcast && forAnybody(h)
}

// extend copies the extension of the frame out, of whose header r.header is a copy. It
// returns false if there must be one, and is not.
func (r *Receiver) extend(frame []byte) bool {
	if !r.Header.Type.RDMA() {
		return true
	}
	x := datasheet.ExtensionAt(frame[datasheet.HeaderSize:])
	if x == nil {
		return false
	}
	r.Extension = *x
	return true
}
