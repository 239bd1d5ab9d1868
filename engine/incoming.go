package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// incoming is the frame that is being received. Most come and go at once. One
// that is still arriving, or whose transfers the host decides, stays, and those
// behind it wait on the wire.
type incoming struct {
	header descriptors.Header // a copy: the wire may be memory that somebody else can write

	// held says that the frame stays; what follows up to status is valid then.
	held   bool
	buf    []byte // the wire's, of the frame's full length
	seen   int    // bytes that have arrived
	judged bool   // by its header
	grew   time.Duration

	// placing says that the payload goes where the receipt says.
	placing bool
	ep      *endpoint
	era     uint32 // of ep when the frame began
	receipt *receipt
	entry   *segment // of the payload table, nil for none
	payload []byte
	moved   uint32 // of the payload, by hostRcv
	landed  bool   // some of it is in host memory
	status  descriptors.Status
}

// verdict on a frame by its header.
type verdict int

const (
	refused verdict = iota // nobody wants it
	taken                  // there is nothing else to do
	placing                // its payload is to be placed
)

// receive takes frames off the wire. It reports whether there were any.
func (e *Engine) receive() bool {
	if e.waiting&receiveHooks != 0 {
		return false
	}
	any := false
	for range receiveBudget {
		if e.in.held {
			any = e.resumeReceive() || any
			if e.in.held {
				return any
			}
			continue
		}
		buf := e.port.Receive()
		if buf == nil {
			return any
		}
		any = true
		if e.progressive != nil {
			if n, aborted := e.progressive.Arrived(); n != len(buf) || aborted {
				e.in.held, e.in.buf, e.in.seen, e.in.judged, e.in.grew = true, buf, 0, false, e.present()
				continue
			}
		}
		e.takeFrame(buf)
	}
	return any
}

// takeFrame handles a frame that has arrived whole.
func (e *Engine) takeFrame(buf []byte) {
	in := &e.in
	in.held, in.entry = false, nil
	payload, ok := e.accept(buf)
	if !ok && isRaw(buf) {
		e.takeRaw(buf)
		return
	}
	if ok && in.header.Flags&descriptors.FrameReference != 0 {
		if ok = e.borrow(payload); ok && e.hooks&wholeFrames != 0 {
			buf, payload, ok = e.expand()
		}
	}
	v := refused
	if ok {
		e.countReceived()
		if e.hooks&wholeFrames != 0 {
			payload, ok = e.steer(buf, payload)
		}
	}
	if ok {
		v = e.demultiplex(&in.header, payload)
	}
	e.deliver(buf, payload, v)
}

// deliver ends a frame that has arrived whole and been judged, unless the host
// decides when its payload moves.
func (e *Engine) deliver(buf, payload []byte, v verdict) {
	in := &e.in
	refers := in.header.Flags&descriptors.FrameReference != 0
	switch v {
	case refused:
		e.count(descriptors.CounterFramesDropped, 1)
	case placing:
		in.moved, in.landed = 0, false
		if e.movers[Receive].Whole(int(in.header.Length), in.queued()) {
			if !refers {
				e.land(payload)
			} else if !e.landBorrowed() {
				e.count(descriptors.CounterFramesDropped, 1)
				break
			}
			in.ep.kind.placed(e, in.ep, &in.header)
			break
		}
		if refers {
			var ok bool
			if buf, payload, ok = e.expand(); !ok {
				e.count(descriptors.CounterFramesDropped, 1)
				break
			}
		}
		in.buf, in.seen, in.judged = buf, len(buf), true
		e.startPlacing(payload)
		_ = e.movers[Receive].Arrived(len(payload)) // all of it, once
		if !e.place() {
			in.held = true
			e.report(Receive)
			return
		}
	}
	e.port.Release()
}

func (e *Engine) countReceived() {
	e.count(descriptors.CounterFramesReceived, 1)
	e.count(descriptors.CounterBytesReceived, uint64(e.in.header.Length))
}

// toPlace says what to do with a data frame that has a receipt: nothing else if
// there is no payload to place.
func (e *Engine) toPlace(ep *endpoint, h *descriptors.Header) verdict {
	e.in.ep = ep
	if h.Length > 0 {
		return placing
	}
	ep.kind.placed(e, ep, h)
	return taken
}

// startPlacing begins to place the payload of a data frame. demultiplex has
// named endpoint, receipt and status.
func (e *Engine) startPlacing(payload []byte) {
	in, rx := &e.in, e.movers[Receive]
	in.placing, in.payload, in.moved, in.landed = true, payload, 0, false
	in.era = in.ep.era
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = rx.Start(len(payload), in.queued())
	if rx.Hosted() {
		e.hold(Receive)
	}
}

// place has hostRcv move what may be moved. It reports whether the frame's
// payload has ended with that.
func (e *Engine) place() bool {
	in, rx := &e.in, e.movers[Receive]
	for {
		n, last := rx.Next()
		if n == 0 {
			return false
		}
		e.land(in.payload[in.moved : in.moved+uint32(n)])
		in.moved += uint32(n)
		_ = rx.Done() // of the transfer that Next began
		if last {
			in.placing = false
			in.ep.kind.placed(e, in.ep, &in.header)
			return true
		}
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
func (e *Engine) land(piece []byte) {
	in := &e.in
	if in.status != 0 {
		return
	}
	to := &in.receipt.layout
	if in.receipt.tabled {
		to = &in.receipt.entry
	}
	landed, st := e.regions.scatter(piece, to, in.header.Offset+in.moved, in.ep.ptag)
	in.landed = in.landed || landed
	if st != 0 && (in.landed || in.receipt.received > 0) {
		st |= descriptors.StatusPartialPacket
	}
	in.status = st
}

// resumeReceive goes on with a frame that is held. It reports whether anything
// has moved.
func (e *Engine) resumeReceive() bool {
	in := &e.in
	grew, gone := e.watch()
	if gone {
		e.dropReceive()
		return true
	}
	if !in.judged {
		if in.seen == len(in.buf) {
			e.takeFrame(in.buf)
			return true
		}
		if in.seen < descriptors.HeaderSize || !e.judge() {
			return grew
		}
	}
	moved := false
	if in.placing {
		if in.ep.era != in.era {
			e.stopPlacing() // the connection has ended, its buffers are the host's again
			return true
		}
		e.checkPulses(Receive)
		if grew {
			_ = e.movers[Receive].Arrived(min(in.seen-descriptors.HeaderSize, len(in.payload))) // never less
		}
		before := in.moved
		e.place()
		if moved = in.moved != before; moved || grew {
			e.report(Receive)
		}
	}
	if !in.placing && in.seen == len(in.buf) {
		in.held = false
		e.port.Release()
		return true
	}
	return moved || grew
}

// watch looks at how much of a frame has arrived. gone says that the rest will
// not come.
func (e *Engine) watch() (grew, gone bool) {
	in := &e.in
	if in.seen == len(in.buf) {
		return false, false
	}
	n, aborted := e.progressive.Arrived()
	switch {
	case aborted, n < in.seen, n > len(in.buf):
		return false, true
	case n > in.seen:
		in.seen, in.grew = n, e.present()
		return true, false
	}
	return false, e.present()-in.grew > e.timing.Dead
}

// judge looks at the header of a frame that is still arriving. It returns false
// if the frame cannot be judged before it is whole.
func (e *Engine) judge() bool {
	in := &e.in
	h := descriptors.HeaderAt(in.buf)
	if h == nil || e.hooks&wholeFrames != 0 {
		return false
	}
	in.header, in.entry = *h, nil
	if !wellFormed(&in.header, len(in.buf)) || in.header.Type != descriptors.FrameData || in.header.Length == 0 ||
		in.header.Destination != e.mac || e.checksum || in.header.Flags&descriptors.FrameChecksum != 0 {
		return false
	}
	in.judged = true
	e.countReceived()
	payload := in.buf[descriptors.HeaderSize : descriptors.HeaderSize+int(in.header.Length)]
	switch e.demultiplex(&in.header, payload) {
	case refused:
		e.count(descriptors.CounterFramesDropped, 1)
	case placing:
		e.startPlacing(payload)
	}
	return true
}

// stopPlacing gives up the payload of the frame that is being received; what is
// left of the frame is only waited for.
func (e *Engine) stopPlacing() {
	in := &e.in
	if in.placing {
		in.placing = false
		e.movers[Receive].Cancel()
		e.count(descriptors.CounterFramesDropped, 1)
		e.report(Receive)
	}
}

// dropReceive gives up a frame whose rest will not come. Nothing has happened
// but that bytes may have landed in a buffer that the host does not look at yet.
func (e *Engine) dropReceive() {
	in := &e.in
	switch {
	case in.placing:
		if u := in.ep.unrel; u != nil && in.ep.era == in.era {
			u.in.open = false // a message without one of its frames
		}
		e.stopPlacing()
	case !in.judged:
		e.count(descriptors.CounterFramesDropped, 1)
	}
	in.held = false
	e.port.Release()
}
