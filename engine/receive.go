package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// receiver takes frames off the wire and places their payloads.
type receiver struct {
	*core
	// demultiplex gives a sound frame to whom it is for.
	demultiplex func(h *datasheet.Header, payload []byte) verdict
	// lane takes a frame of a message that is as most are, and reports whether it has; short takes
	// a short frame, raw one of another protocol. They are the transport's, as values: so they cost
	// a message no more than a call.
	lane  func(frame []byte) bool
	short func(payload []byte, h datasheet.ShortHeader, lent bool)
	raw   func(frame []byte)
	conns *connections

	incoming
	placement
	// lent are the bytes that the frame refers to, if it does not carry its payload.
	lent       [datasheet.MaxReferences][]byte
	references int // how many of lent there are
	// joined takes a frame whose bytes are needed in one place; nil until one is. See ownFrame.
	joined []byte
	// behind says that the last round left frames on the wire.
	behind bool
	// written is an RDMA write that takes no receive, while a frame of it is placed.
	written receipt
}

// incoming is the frame that is being received. Most come and go at once. One
// that is still arriving, or whose transfers the host decides, stays, and those
// behind it wait on the wire.
type incoming struct {
	header    datasheet.Header    // a copy: the peer may be able to write the memory of the wire
	extension datasheet.Extension // of an RDMA frame, likewise

	// held says that the frame stays; what follows up to status is valid then.
	held   bool
	buf    []byte // the wire's, of the frame's full length
	seen   int    // bytes that have arrived
	judged bool   // by its header
	grew   time.Duration

	// placing says that the payload goes to the memory of to.
	placing bool
	ep      *endpoint
	era     uint32 // of ep when the frame began
	receipt *receipt
	to      *layout
	read    *sending // that a response is for
	entry   *segment // of the payload table, nil for none
	payload []byte
	moved   uint32 // of the payload, by hostRcv
	landed  bool   // some of it is in host memory
	status  datasheet.Status
	// untold says that the frame is of a connection that has ended, or never was, and
	// that the peer is still to be told: once the frame is released, a peer on a wire
	// that loses nothing takes it for placed. unanswered says that there was no room to.
	untold, unanswered bool
}

// verdict on a frame by its header.
type verdict int

const (
	refused verdict = iota // nobody wants it
	taken                  // there is nothing else to do
	placing                // its payload is to be placed: the kind has called receiver.aim
)

// clear forgets the frame in progress. What is left of it is still waited for; on a wire
// that loses nothing its sender is told that nobody wants it.
func (r *receiver) clear() {
	r.incoming = incoming{held: r.held, buf: r.buf, seen: r.seen, judged: r.lossless == nil && r.peers == nil, grew: r.present()}
}

// receive takes frames off the wire. It reports whether there were any.
func (r *receiver) receive() bool {
	r.behind = true
	if r.waiting&receiveHooks != 0 {
		return false
	}
	any := false
	for range receiveBudget {
		if r.events&cellsFirst != 0 {
			return any // what is to be stored goes first
		}
		if r.held {
			any = r.resume() || any
			if r.held {
				return any
			}
			continue
		}
		buf := r.port.Receive()
		if buf == nil {
			r.behind = false
			return any
		}
		any = true
		if r.slots != nil {
			if h, lent, ok := r.slots.Short(); ok {
				r.short(buf, h, lent)
				continue
			}
		}
		if r.progressive != nil {
			if n, aborted := r.progressive.Arrived(); n != len(buf) || aborted {
				r.held, r.buf, r.seen, r.judged, r.grew = true, buf, 0, false, r.present()
				continue
			}
		}
		if !r.lane(buf) {
			r.takeFrame(buf)
		}
	}
	return any
}

// takeFrame handles a frame that has arrived whole.
func (r *receiver) takeFrame(buf []byte) {
	r.held, r.entry, r.unanswered = false, nil, false
	payload, ok := r.accept(buf)
	if ok && r.header.Flags&datasheet.FrameReference != 0 {
		if ok = r.borrow(payload); ok && r.hooks&arriveWhole != 0 {
			buf, payload, ok = r.expand()
		}
	}
	if r.hooks&watching != 0 {
		r.show(false, buf)
	}
	if !ok && isRaw(buf) {
		r.raw(buf)
		return
	}
	v := refused
	if ok {
		r.countReceived(int(r.header.Length))
		if r.hooks&wholeFrames != 0 {
			payload, ok = r.steer(buf, payload)
		}
	}
	if ok {
		v = r.demultiplex(&r.header, payload)
	}
	r.deliver(buf, payload, v)
}

// deliver ends a frame that has arrived whole and been judged, unless the host
// decides when its payload moves.
func (r *receiver) deliver(buf, payload []byte, v verdict) {
	refers := r.header.Flags&datasheet.FrameReference != 0
	switch v {
	case refused:
		r.refuse()
	case placing:
		r.moved, r.landed = 0, false
		if r.header.Length == 0 || r.dma.movers[Receive].Whole(int(r.header.Length), r.queued()) {
			if !refers {
				r.land(payload)
			} else if !r.landBorrowed() {
				r.refuse()
				break
			}
			r.advance(r.header.Offset, uint32(r.header.Length))
			r.ep.delivery.placed(r.ep, &r.header)
			break
		}
		if refers {
			var ok bool
			if buf, payload, ok = r.expand(); !ok {
				r.refuse()
				break
			}
		}
		r.buf, r.seen, r.judged = buf, len(buf), true
		r.startPlacing(payload)
		_ = r.dma.movers[Receive].Arrived(len(payload)) // all of it, once
		if !r.place() {
			r.held = true
			r.dma.report(Receive)
			return
		}
	}
	r.release(buf)
}

// refuse drops a frame. On a wire that loses nothing none is sent again: it is the end
// of the connection that it is of.
func (r *receiver) refuse() {
	r.count(datasheet.CounterFramesDropped, 1)
	ep, h := r.endpoint(r.header.DestinationEndpoint), &r.header
	if ep != nil && ep.flow != nil && ep.flow.wire != 0 && (h.Type == datasheet.FrameData || h.Type.RDMA()) && ep.from(h) {
		r.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
	}
}

// release gives a frame back to the wire, and reports whether it has. If its connection is
// no more the peer is told first, for which there may be no room yet: then the frame stays.
func (r *receiver) release(buf []byte) bool {
	if (r.lossless != nil || r.peers != nil) && !r.told() {
		if !r.untold {
			r.held, r.buf, r.seen, r.judged, r.untold, r.grew = true, buf, len(buf), true, true, r.present()
		}
		patience := r.timing.Dead
		if r.peers != nil {
			patience /= deadProbes // the frames of others wait
		}
		if r.present()-r.grew <= patience {
			return false
		}
		// The peer takes nothing, perhaps since it waits as this end does.
		if w := r.wayTo(r.header.Source); w != nil {
			w.Break()
		}
	}
	r.untold, r.held = false, false
	r.port.Release()
	return true
}

// told reports whether the peer has been told if the frame's connection is no more. One from which
// frames may be lost is not waited for.
func (r *receiver) told() bool {
	ep := r.endpoint(r.header.DestinationEndpoint)
	if ep != nil && ep.ended.due && ep.ended.mac == r.header.Source {
		return r.wire(r.header.Source) == 0
	}
	r.unanswered = r.unanswered && !r.conns.answerUnknown(ep, &r.header)
	return !r.unanswered || r.wire(r.header.Source) == 0
}

// countReceived counts a frame that stands for n bytes of payload.
func (r *receiver) countReceived(n int) {
	r.count(datasheet.CounterFramesReceived, 1)
	r.count(datasheet.CounterBytesReceived, uint64(n))
}

// startPlacing begins to place the payload of a data frame. demultiplex has
// named endpoint, receipt and status.
func (r *receiver) startPlacing(payload []byte) {
	rx := r.dma.movers[Receive]
	r.placing, r.payload, r.moved, r.landed = true, payload, 0, false
	r.era, r.moves = r.ep.era, 0
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = rx.Start(len(payload), r.queued())
	if rx.Hosted() {
		r.dma.hold(Receive)
	}
}

// place has hostRcv move what may be moved. It reports whether the frame's
// payload has ended with that.
func (r *receiver) place() bool {
	rx := r.dma.movers[Receive]
	for {
		n, last := r.nextPlaced()
		if n == 0 {
			return false
		}
		r.land(r.payload[r.moved : r.moved+uint32(n)])
		r.advance(r.header.Offset+r.moved, uint32(n))
		r.moved += uint32(n)
		_ = rx.Done() // of the transfer that Next began
		if last {
			r.placing = false
			r.ep.delivery.placed(r.ep, &r.header)
			return true
		}
	}
}

// nextPlaced is Mover.Next of the receiver: it answers when the bytes have had their time.
func (r *receiver) nextPlaced() (n int, last bool) {
	p, rx := &r.placement, r.dma.movers[Receive]
	if p.bus.Instant() {
		return rx.Next()
	}
	if p.moves == 0 {
		if p.moves, p.ends = rx.Next(); p.moves == 0 {
			return 0, false
		}
		p.until = r.clock.read() + p.bus.Setup + p.bus.Takes(p.moves)
	}
	if r.clock.read() < p.until {
		return 0, false
	}
	n, p.moves = p.moves, 0
	return n, p.ends
}

// accept checks a frame that has arrived whole and copies its header out.
func (r *receiver) accept(buf []byte) (payload []byte, ok bool) {
	on := datasheet.HeaderAt(buf)
	if on == nil {
		r.header = datasheet.Header{} // not that of the frame before
		return nil, false
	}
	h := &r.header
	*h = *on
	refers := h.Flags&datasheet.FrameReference != 0
	if !wellFormed(h, len(buf)) || !r.extend(buf) ||
		refers && (r.lender == nil || h.Type != datasheet.FrameData && h.Type != datasheet.FrameWrite) {
		return nil, false
	}
	size := headerSize(h.Type)
	if !refers {
		buf = buf[:size+int(h.Length)]
	}
	checked := h.Flags&datasheet.FrameChecksum != 0
	if !checked && r.checksum || checked && datasheet.FrameChecksumOf(buf) != h.Checksum {
		r.count(datasheet.CounterChecksumErrors, 1)
		return nil, false
	}
	return buf[size:], h.Destination == r.mac || h.Destination == datasheet.Broadcast && forAnybody(h)
}

// extend copies the extension of the frame out, of whose header r.header is a copy. It
// returns false if there must be one, and is not.
func (r *receiver) extend(frame []byte) bool {
	if !r.header.Type.RDMA() {
		return true
	}
	x := datasheet.ExtensionAt(frame[datasheet.HeaderSize:])
	if x == nil {
		return false
	}
	r.extension = *x
	return true
}

// aim has the payload of the frame in progress placed where in says, on behalf of ep; with
// a status it is not.
func (r *receiver) aim(ep *endpoint, in *receipt, st datasheet.Status) {
	r.ep, r.receipt, r.to, r.status = ep, in, &in.layout, st
	if in.tabled {
		r.to = &in.entry
	}
}

// queued is how many frames are known to wait behind this one: the rest of its
// message.
func (in *incoming) queued() int {
	h := &in.header
	return framesIn(h.Extent-h.Offset-uint32(h.Length), uint32(h.Length))
}

// land writes the next piece of a message to where it belongs, unless the message
// has failed. If that fails when some of the message has landed, the status says
// so.
func (r *receiver) land(piece []byte) {
	if r.status != 0 {
		return
	}
	at := r.header.Offset + r.moved
	if r.receipt.discards {
		if piece = piece[:min(uint32(len(piece)), max(r.to.total, at)-at)]; len(piece) == 0 {
			return
		}
	}
	landed, st := r.regions.scatter(piece, r.to, at, r.ep.ptag)
	r.landed = r.landed || landed
	if st != 0 && r.receipt.withdraw() {
		return
	}
	if st != 0 && (r.landed || r.receipt.received > 0) {
		st |= datasheet.StatusPartialPacket
	}
	r.status = st
}

// resume goes on with a frame that is held. It reports whether anything
// has moved.
func (r *receiver) resume() bool {
	if r.untold {
		return r.release(r.buf)
	}
	grew, gone := r.watch()
	if gone {
		r.drop()
		return true
	}
	if !r.judged {
		if r.seen == len(r.buf) {
			r.takeFrame(r.buf)
			return true
		}
		if r.seen < datasheet.HeaderSize || !r.judge() {
			return grew
		}
	}
	moved := false
	if r.placing {
		if r.ep.era != r.era {
			r.stopPlacing() // the connection has ended, its buffers are the host's again
			return true
		}
		r.dma.checkPulses(Receive)
		if grew {
			_ = r.dma.movers[Receive].Arrived(min(r.seen-datasheet.HeaderSize, len(r.payload))) // never less
		}
		before := r.moved
		r.place()
		if moved = r.moved != before; moved || grew {
			r.dma.report(Receive)
		}
	}
	if !r.placing && r.seen == len(r.buf) {
		r.release(r.buf)
		return true
	}
	return moved || grew
}

// watch looks at how much of a frame has arrived. gone says that the rest will
// not come.
func (r *receiver) watch() (grew, gone bool) {
	if r.seen == len(r.buf) {
		return false, false
	}
	n, aborted := r.progressive.Arrived()
	switch {
	case aborted, n < r.seen, n > len(r.buf):
		return false, true
	case n > r.seen:
		r.seen, r.grew = n, r.present()
		return true, false
	}
	if r.present()-r.grew <= r.timing.Dead {
		return false, false
	}
	if r.lossless != nil {
		r.lossless.Break() // its sender may end it yet, and take it for placed
	}
	return false, true
}

// judge looks at the header of a frame that is still arriving. It returns false
// if the header says too little before the frame is whole.
func (r *receiver) judge() bool {
	h := datasheet.HeaderAt(r.buf)
	if h == nil || r.hooks&arriveWhole != 0 {
		return false
	}
	r.header, r.entry, r.unanswered = *h, nil, false
	if !wellFormed(&r.header, len(r.buf)) || r.header.Type != datasheet.FrameData || r.header.Length == 0 ||
		r.header.Destination != r.mac || r.checksum || r.header.Flags&(datasheet.FrameChecksum|datasheet.FrameReference) != 0 {
		return false
	}
	r.judged = true
	r.countReceived(int(r.header.Length))
	payload := r.buf[datasheet.HeaderSize : datasheet.HeaderSize+int(r.header.Length)]
	switch r.demultiplex(&r.header, payload) {
	case refused:
		r.refuse()
	case placing:
		r.startPlacing(payload)
	}
	return true
}

// stopPlacing gives up the payload of the frame that is being received; what is
// left of the frame is only waited for.
func (r *receiver) stopPlacing() {
	r.placing = false
	r.dma.movers[Receive].Cancel()
	r.count(datasheet.CounterFramesDropped, 1)
	r.dma.report(Receive)
}

// drop gives up a frame whose rest will not come. Nothing has happened
// but that bytes may have landed in a buffer that the host does not look at yet.
func (r *receiver) drop() {
	switch {
	case r.placing:
		if r.ep.flow == nil && r.ep.era == r.era {
			r.receipt.open = false // a message without one of its frames
		}
		r.stopPlacing()
	case !r.judged:
		r.count(datasheet.CounterFramesDropped, 1)
	}
	r.held = false
	r.port.Release()
}
