package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// incoming is the frame that is being received. Most come and go at once. One
// that is still arriving, or whose transfers the host decides, stays, and those
// behind it wait on the wire.
type incoming struct {
	Header    datasheet.Header    // a copy: the peer may be able to write the memory of the wire
	Extension datasheet.Extension // of an RDMA frame, likewise

	// Held says that the frame stays; what follows up to status is valid then.
	Held   bool
	buf    []byte // the wire's, of the frame's full length
	seen   int    // bytes that have arrived
	judged bool   // by its header
	grew   time.Duration

	// Placing says that the payload goes to the memory of to.
	Placing bool
	ep      *Endpoint
	era     uint32 // of ep when the frame began
	Receipt *Receipt
	To      *Layout
	Read    *Sending // that a response is for
	Entry   *Segment // of the payload table, nil for none
	payload []byte
	moved   uint32 // of the payload, by hostRcv
	Landed  bool   // some of it is in host memory
	Status  datasheet.Status
	// rejectPending says that the frame is of a connection that has ended, or never was, and
	// that the peer is still to be told: once the frame is released, a peer on a wire
	// that loses nothing takes it for placed. unanswered says that there was no room to.
	rejectPending, Unanswered bool
}

// clear forgets the frame in progress. What is left of it is still waited for; on a wire
// that loses nothing its sender is told that it is refused.
func (r *Receiver) clear() {
	if r.box != nil {
		r.box.clear()
		r.incoming, r.placement = incoming{}, placement{}
		return
	}
	r.incoming = incoming{Held: r.Held, buf: r.buf, seen: r.seen, judged: r.Lossless == nil && r.Peers == nil, grew: r.Present()}
}

// startPlacing begins to place the payload of a data frame. demultiplex has
// named endpoint, receipt and status.
func (r *Receiver) startPlacing(payload []byte) {
	rx := r.DMA.Movers[Receive]
	r.Placing, r.payload, r.moved, r.Landed = true, payload, 0, false
	r.era, r.Moves = r.ep.Era, 0
	if r.box == nil {
		// No frame is in progress and the length is good: Start cannot refuse.
		_ = rx.Start(len(payload), r.queued())
	}
	if rx.Hosted() {
		r.DMA.hold(Receive)
	}
}

// place has hostRcv move what may be moved. It reports whether the frame's
// payload has ended with that.
func (r *Receiver) place() bool {
	rx := r.DMA.Movers[Receive]
	for {
		n, last := r.nextPlaced()
		if n == 0 {
			return false
		}
		r.land(r.payload[r.moved : r.moved+uint32(n)])
		r.advance(r.Header.Offset+r.moved, uint32(n))
		r.moved += uint32(n)
		_ = rx.Done() // of the transfer that Next began
		if last {
			if r.Placing = false; r.box != nil {
				r.box.oldest().left = true
			}
			r.ep.Delivery.Placed(r.ep, &r.Header)
			return true
		}
	}
}

// nextPlaced is Mover.Next of the receiver: it answers when the bytes have had their time.
func (r *Receiver) nextPlaced() (n int, last bool) {
	p, rx := &r.placement, r.DMA.Movers[Receive]
	if r.Bus.Instant() {
		return rx.Next()
	}
	if p.Moves == 0 {
		if !r.Bus.acquire(Receive) {
			return 0, false
		}
		if p.Moves, p.ends = rx.Next(); p.Moves == 0 {
			r.Bus.release(Receive)
			return 0, false
		}
		p.until = r.Clock.Read() + r.Bus.Setup + r.Bus.Takes(p.Moves)
	}
	if r.Clock.Read() < p.until {
		return 0, false
	}
	n, p.Moves = p.Moves, 0
	r.Bus.release(Receive)
	return n, p.ends
}

// Aim has the payload of the frame in progress placed where in says, on behalf of ep; with
// a status it is not.
func (r *Receiver) Aim(ep *Endpoint, in *Receipt, st datasheet.Status) {
	r.ep, r.Receipt, r.To, r.Status = ep, in, &in.Layout, st
	if in.Tabled {
		r.To = &in.Entry
	}
}

// queued returns the number of frames that are known to wait behind this one: the rest of its
// message.
func (in *incoming) queued() int {
	h := &in.Header
	return framesIn(h.Extent-h.Offset-uint32(h.Length), uint32(h.Length))
}

// land writes the next piece of a message to where it belongs, unless the message
// has failed. If that fails when some of the message has landed, the status says
// so.
func (r *Receiver) land(piece []byte) {
	if r.Status != 0 {
		return
	}
	at := r.Header.Offset + r.moved
	if r.Receipt.Discards {
		if piece = piece[:min(uint32(len(piece)), max(r.To.Total, at)-at)]; len(piece) == 0 {
			return
		}
	}
	landed, st := r.Regions.Scatter(piece, r.To, at, r.ep.Ptag)
	r.Landed = r.Landed || landed
	if st != 0 && r.Receipt.Withdraw() {
		return
	}
	if st != 0 && (r.Landed || r.Receipt.Received > 0) {
		st |= datasheet.StatusPartialPacket
	}
	r.Status = st
}

// resume goes on with a frame that is held. It reports whether anything
// has moved.
func (r *Receiver) resume() bool {
	if r.rejectPending {
		return r.Release(r.buf)
	}
	grew, gone := r.watch()
	if gone {
		r.drop()
		return true
	}
	if !r.judged {
		if r.seen == len(r.buf) {
			r.TakeFrame(r.buf)
			return true
		}
		if r.seen < datasheet.HeaderSize || !r.judge() {
			return grew
		}
	}
	moved := false
	if r.Placing {
		if r.ep.Era != r.era {
			r.stopPlacing() // the connection has ended, its buffers are the host's again
			return true
		}
		r.DMA.checkPulses(Receive)
		if grew && r.box == nil {
			_ = r.DMA.Movers[Receive].Arrived(min(r.seen-datasheet.HeaderSize, len(r.payload))) // never less
		}
		before := r.moved
		r.place()
		if moved = r.moved != before; moved || grew {
			r.DMA.report(Receive)
		}
	}
	if !r.Placing && r.seen == len(r.buf) {
		r.Release(r.buf)
		return true
	}
	return moved || grew
}

// watch looks at how much of a frame has arrived. gone says that the rest will
// not come.
func (r *Receiver) watch() (grew, gone bool) {
	if r.seen == len(r.buf) {
		return false, false
	}
	if r.box != nil {
		f := r.box.oldest()
		grew, gone = f.seen > r.seen, f.aborted
		r.seen = f.seen
		return grew, gone
	}
	n, aborted := r.progressive.Arrived()
	switch {
	case aborted, n < r.seen, n > len(r.buf):
		return false, true
	case n > r.seen:
		r.seen, r.grew = n, r.Present()
		return true, false
	}
	if r.Present()-r.grew <= r.Timing.Dead {
		return false, false
	}
	if r.Lossless != nil {
		r.Lossless.Break() // its sender may end it yet, and take it for placed
	}
	return false, true
}

// judge looks at the header of a frame that is still arriving. It returns false
// if the header says too little before the frame is whole.
func (r *Receiver) judge() bool {
	h := datasheet.HeaderAt(r.buf)
	if h == nil || r.Hooks&ArriveWhole != 0 {
		return false
	}
	r.Header, r.Entry, r.Unanswered = *h, nil, false
	if !wellFormed(&r.Header, len(r.buf)) || r.Header.Type != datasheet.FrameData || r.Header.Length == 0 ||
		r.Header.Destination != r.MAC || r.Checksum || r.Header.Flags&(datasheet.FrameChecksum|datasheet.FrameReference) != 0 {
		return false
	}
	r.judged = true
	r.CountReceived(int(r.Header.Length))
	payload := r.buf[datasheet.HeaderSize : datasheet.HeaderSize+int(r.Header.Length)]
	switch r.demultiplex(&r.Header, payload) {
	case Refused:
		r.Refuse()
	case Placing:
		r.startPlacing(payload)
	}
	return true
}

// stopPlacing gives up the payload of the frame that is being received; what is
// left of the frame is only waited for.
func (r *Receiver) stopPlacing() {
	r.Placing = false
	if r.Moves = 0; r.box == nil {
		r.DMA.Movers[Receive].Drop()
	}
	r.Bus.release(Receive)
	r.Count(datasheet.CounterFramesDropped, 1)
	r.DMA.report(Receive)
}

// drop gives up a frame whose rest will not come. Nothing has happened
// but that bytes may have landed in a buffer that the host does not look at yet.
func (r *Receiver) drop() {
	switch {
	case r.Placing:
		if r.ep.Flow == nil && r.ep.Era == r.era {
			r.Receipt.Open = false // a message without one of its frames
		}
		r.stopPlacing()
	case !r.judged:
		r.Count(datasheet.CounterFramesDropped, 1)
	}
	r.Held = false
	r.giveBack()
}
