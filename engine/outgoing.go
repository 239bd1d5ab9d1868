package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// outgoing is the data frame that is being sent. Most leave in one go; one whose
// transfers the host decides is held until it has left, and meanwhile the wire is
// as if it were full.
type outgoing struct {
	held     bool
	ep       *endpoint
	era      uint32 // of ep when the frame began
	m        *sending
	buf      []byte // the wire's
	at       uint32 // where the payload starts in the frame; zero in a raw one
	psn      uint32
	offset   uint32 // in the message
	length   uint32 // of the payload
	gathered uint32 // of the payload, by hostTx
	shown    uint32 // of the payload, by netTx; zero once the frame has ended
	// published: the peer may have read some of it.
	published bool
	credit    uint32 // that the header gives
	again     bool   // the frame was sent before
}

// outcome of an attempt to send a frame.
type outcome int

const (
	frameSent    outcome = iota
	frameWaiting         // for room on the wire, or for the host
	frameFailed          // which has been dealt with
	frameCopied          // its payload cannot be lent
)

// sendData sends the frame of m that starts at offset; again says that it has
// been sent before.
func (e *Engine) sendData(ep *endpoint, m *sending, psn, offset uint32, flags descriptors.FrameFlags, again bool) outcome {
	n := min(m.total-offset, e.maxPayload)
	if e.waiting.Has(HookPulseTransmit) {
		return frameWaiting
	}
	tx, behind := e.movers[Transmit], framesIn(m.total-offset-n, n)+int(ep.send.posted())
	if n >= lendFrom && e.lends(ep) {
		if result := e.sendLent(ep, m, psn, offset, n, flags, behind, again); result != frameCopied {
			return result
		}
	}
	buf := e.reserve(int(n))
	if buf == nil {
		return frameWaiting
	}
	credit := e.head(buf, ep, m, psn, offset, n, flags)
	if n == 0 || n <= e.oneBurst && tx.Plain() {
		if st := e.regions.gather(buf[descriptors.HeaderSize:], &m.layout, offset, ep.ptag); st != 0 {
			ep.kind.failed(e, ep, m, again, st)
			return frameFailed
		}
		if n == 0 || tx.Whole(int(n), behind) {
			e.launch(buf)
			if behind == 0 && e.alone {
				e.flush() // the peer need not wait for the book-keeping
			}
			ep.kind.sent(e, ep, m, psn, offset, n, credit, again)
			return frameSent
		}
	}
	e.out = outgoing{ep: ep, era: ep.era, m: m, buf: buf, at: descriptors.HeaderSize,
		psn: psn, offset: offset, length: n, credit: credit, again: again}
	return e.startSend(behind)
}

// head writes the header of a data frame of m: n bytes from offset on. It returns the
// credit that the header gives.
//
// It is written field by field, each once and in its place: a header that is put
// together elsewhere and copied is read before the processor has written it, and
// waits for that (store forwarding: Intel 64 and IA-32 Architectures Optimization
// Reference Manual, 3.6.4).
func (e *Engine) head(buf []byte, ep *endpoint, m *sending, psn, offset, n uint32, flags descriptors.FrameFlags) (credit uint32) {
	if offset == 0 {
		flags |= descriptors.FrameFirst
	}
	if offset+n == m.total {
		flags |= descriptors.FrameLast
	}
	if m.control.bits&descriptors.ControlImmediate != 0 {
		flags |= descriptors.FrameImmediate
	}
	h := descriptors.HeaderAt(buf)
	*h = ep.outline
	h.Type, h.Flags, h.Length = descriptors.FrameData, ep.outline.Flags|flags, uint16(n)
	h.PSN, h.Message, h.Extent, h.Offset, h.Immediate = psn, m.number, m.total, offset, m.control.immediate
	if r := ep.rel; r != nil {
		credit = e.credit(ep)
		h.Ack, h.Credit = r.expect, credit
	}
	return credit
}

// startSend begins to move the frame that e.out describes.
func (e *Engine) startSend(behind int) outcome {
	tx := e.movers[Transmit]
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = tx.Start(int(e.out.length), behind)
	if !tx.Hosted() {
		return e.feed()
	}
	e.hold(Transmit)
	result := e.feed()
	e.report(Transmit)
	return result
}

// feed has hostTx and netTx work on the frame that is being sent until it has
// left; if the host decides, until both have had a turn.
func (e *Engine) feed() outcome {
	o, tx := &e.out, e.movers[Transmit]
	for {
		if o.gathered < o.length {
			n := min(o.length-o.gathered, uint32(e.pipeline.Burst))
			at := o.at + o.gathered
			if st := e.regions.gather(o.buf[at:at+n], &o.m.layout, o.offset+o.gathered, o.ep.ptag); st != 0 {
				e.dropSend()
				o.ep.kind.failed(e, o.ep, o.m, o.again, st)
				return frameFailed
			}
			o.gathered += n
		}
		_ = tx.Arrived(int(o.gathered)) // once all has arrived that is no news, and refused
		for n, last := tx.Next(); n > 0; n, last = tx.Next() {
			o.shown += uint32(n)
			if last {
				if o.at == 0 {
					if st := e.launchRaw(o.ep, o.buf); st != 0 {
						e.dropSend()
						o.ep.kind.failed(e, o.ep, o.m, false, st)
						return frameFailed
					}
				} else {
					e.launch(o.buf)
				}
				_ = tx.Done() // of the transfer that Next began
				o.shown, o.published, o.held = 0, false, false
				o.ep.kind.sent(e, o.ep, o.m, o.psn, o.offset, o.length, o.credit, o.again)
				return frameSent
			}
			if e.pieces && o.at != 0 && !e.asks(HookFilterTransmit) { // which is shown whole frames
				o.published = true
				e.progressive.Publish(descriptors.HeaderSize + int(o.shown))
			}
			_ = tx.Done()
		}
		if o.held = tx.Hosted(); o.held {
			return frameWaiting
		}
	}
}

// resumeSend goes on with a frame that is held. It reports whether anything
// moved.
func (e *Engine) resumeSend() bool {
	o := &e.out
	if e.waiting&transmitHooks != 0 {
		return false
	}
	if r := o.ep.rel; o.ep.era != o.era || o.again && o.psn-r.una >= r.nxt-r.una {
		// The connection has ended, or the frame has arrived after all: its memory
		// may be the host's again.
		e.dropSend()
		return true
	}
	e.checkPulses(Transmit)
	gathered, shown := o.gathered, o.shown
	moved := e.feed() != frameWaiting || o.gathered != gathered || o.shown != shown
	if moved {
		e.report(Transmit)
	}
	return moved
}

// dropSend gives up the frame that is being sent, if there is one.
func (e *Engine) dropSend() {
	o := &e.out
	if o.published {
		e.progressive.Abort()
	}
	o.shown, o.published, o.held = 0, false, false
	e.movers[Transmit].Cancel()
	e.report(Transmit)
}
