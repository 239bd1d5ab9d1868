package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// transmitter sends frames: those of messages in turns, one at a time, and between
// them those that carry no payload.
type transmitter struct {
	*core
	outgoing
	pace
	references [datasheet.MaxReferences]datasheet.Reference // in a frame whose payload is lent
	spare      []*endpoint                                  // memory for ready
	alone      bool                                         // only one endpoint has something to send
	dropped    bool                                         // the last frame, by a program
}

// sending is a message on its way out.
type sending struct {
	layout
	number  uint32 // of the message, or of the next if it takes no receive
	cut     uint32 // bytes that have been cut into frames
	begun   bool   // a frame has been cut
	allCut  bool
	frames  datasheet.FrameType // that it is cut into
	lastPSN uint32
	awaits  uint32 // bytes of a read that have not come
	request uint32 // Request of its frames (SPEC.md 8.13)
}

// outgoing is the data frame that is being sent. Most leave in one go; one whose
// transfers the host decides, or take their time, is held until it has left, and
// meanwhile the wire is as if it were full.
type outgoing struct {
	held     bool
	ep       *endpoint
	era      uint32 // of ep when the frame began
	m        *sending
	buf      []byte // the wire's; of transfers that take their time, the NIC's
	out      []byte // the wire's then, nil if there is none
	copied   int    // bytes of buf in out
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

// clear gives up the frame in progress.
func (t *transmitter) clear() {
	if t.published {
		t.progressive.Abort()
	}
	t.outgoing, t.spare, t.busy, t.coming = outgoing{}, nil, false, false
}

// transmit gives every endpoint that has something to send a turn. It reports
// whether anything went out.
func (t *transmitter) transmit() bool {
	before := t.progress
	if t.events&leaving != 0 && t.watch() {
		t.progress++
	}
	if t.held {
		// Nobody else can send until this frame has left.
		if moved := t.resume(); t.held {
			return moved
		}
	}
	turn := t.ready.members
	t.alone = len(turn) == 1
	t.ready.members, t.events = t.spare[:0], t.events&^onReady
	var last *endpoint // whose frame is held: the others are before it the next time
	for i, ep := range turn {
		turn[i], ep.listed = nil, ep.listed&^onReady
		switch more := ep.state == datasheet.StateConnected && ep.delivery.transmit(ep, transmitQuantum); {
		case more && t.held && last == nil:
			last = ep
		case more:
			t.ready.add(ep)
		}
	}
	if last != nil {
		t.ready.add(last)
	}
	t.spare = turn[:0]
	return t.progress != before
}

// sendData sends the frame of m that starts at offset; again says that it has
// been sent before.
func (t *transmitter) sendData(ep *endpoint, m *sending, psn, offset uint32, flags datasheet.FrameFlags, again bool) outcome {
	n, at := min(m.total-offset, ep.maxPayload), datasheet.HeaderSize
	if offset < ep.shortest && t.lender != nil && ep.flow != nil && m.total-ep.shortest >= lendFrom {
		// The message of a ring goes ahead, and its payload can be lent. It is cut alike when
		// it is sent again.
		n = ep.shortest - offset
	}
	if m.frames != datasheet.FrameData {
		n, at = min(n, ep.maxPayload-datasheet.ExtensionSize), at+datasheet.ExtensionSize
	}
	if t.waiting&transmitHooks != 0 {
		return frameWaiting
	}
	tx, behind := t.dma.movers[Transmit], framesIn(m.total-offset-n, n)+int(ep.send.posted())
	if n >= lendFrom && offset >= ep.shortest && m.frames != datasheet.FrameReadResponse && t.lends(ep) {
		if result := t.sendLent(ep, m, psn, offset, n, flags, behind, again); result != frameCopied {
			return result
		}
	}
	var buf []byte
	if t.timed {
		buf = t.frame(&ep.remote.mac, at, int(n))
	} else {
		buf = t.reserve(&ep.remote.mac, at+int(n))
	}
	if buf == nil {
		return frameWaiting
	}
	credit := head(buf, ep, m, psn, offset, n, flags)
	if n == 0 || n <= t.oneBurst && tx.Plain() {
		if st := t.regions.gather(buf[at:], &m.layout, offset, ep.ptag); st != 0 {
			ep.delivery.failed(ep, m, again, st)
			return frameFailed
		}
		if n == 0 || tx.Whole(int(n), behind) {
			t.launch(buf)
			if behind == 0 && t.alone {
				t.flush() // the peer need not wait for the book-keeping
			}
			ep.delivery.sent(ep, m, psn, offset, n, credit, again)
			return frameSent
		}
	}
	t.outgoing = outgoing{ep: ep, era: ep.era, m: m, buf: buf, at: uint32(at),
		psn: psn, offset: offset, length: n, credit: credit, again: again}
	return t.start(behind)
}

// head writes the header of a data frame of m: n bytes from offset on. It returns the
// credit that the header gives.
//
// It is written field by field, each once and in its place: a header that is put
// together elsewhere and copied is read before the processor has written it, and
// waits for that (store forwarding: Intel 64 and IA-32 Architectures Optimization
// Reference Manual, 3.6.4).
func head(buf []byte, ep *endpoint, m *sending, psn, offset, n uint32, flags datasheet.FrameFlags) (credit uint32) {
	if offset == 0 {
		flags |= datasheet.FrameFirst
	}
	if offset+n == m.total {
		flags |= datasheet.FrameLast
	}
	if m.control.bits&datasheet.ControlImmediate != 0 {
		flags |= datasheet.FrameImmediate
	}
	h := datasheet.HeaderAt(buf)
	*h = ep.outline
	h.Type, h.Flags, h.Length = datasheet.FrameData, ep.outline.Flags|flags, uint16(n)
	h.PSN, h.Message, h.Extent, h.Offset, h.Immediate = psn, m.number, m.total, offset, m.control.immediate
	if r := ep.flow; r != nil {
		credit = r.credit()
		h.Ack, h.Credit = r.expect, credit
	}
	if m.frames != datasheet.FrameData {
		m.extend(h, datasheet.ExtensionAt(buf[datasheet.HeaderSize:]))
	}
	return credit
}

// start begins to move the frame in progress.
func (t *transmitter) start(behind int) outcome {
	tx := t.dma.movers[Transmit]
	// No frame is in progress and the length is good: Start cannot refuse.
	_ = tx.Start(int(t.length), behind)
	t.beginGather()
	if !tx.Hosted() {
		return t.feed()
	}
	t.dma.hold(Transmit)
	result := t.feed()
	t.dma.report(Transmit)
	return result
}

// feed has hostTx and netTx work on the frame that is being sent until it has
// left; if the host decides, until both have had a turn, and if transfers take their
// time, until both have to wait.
func (t *transmitter) feed() outcome {
	o, tx, timed := &t.outgoing, t.dma.movers[Transmit], t.timed
	for {
		n := min(o.length-o.gathered, uint32(t.dma.config.Burst))
		if timed {
			n = t.fetched(n, o.length-o.gathered-n)
		}
		if n > 0 {
			at := o.at + o.gathered
			if st := t.regions.gather(o.buf[at:at+n], &o.m.layout, o.offset+o.gathered, o.ep.ptag); st != 0 {
				return t.fail(st)
			}
			o.gathered += n
		}
		_ = tx.Arrived(int(o.gathered)) // once all has arrived that is no news, and refused
		for !timed || t.mayMove() {
			n, last := tx.Next()
			if n == 0 {
				break
			}
			o.shown += uint32(n)
			if last {
				return t.finishFrame()
			}
			if t.pieces && o.at != 0 && !t.asks(HookFilterTransmit) { // which is shown whole frames
				o.published = true
				if timed {
					t.passOn(int(o.at + o.shown))
				}
				t.progressive.Publish(int(o.at + o.shown))
			}
			if timed {
				t.moved()
			} else {
				_ = tx.Done()
			}
		}
		if o.held = tx.Hosted() || timed && (n == 0 || o.gathered == o.length); o.held {
			return frameWaiting
		}
	}
}

// finishFrame hands the rest of the frame in progress to the wire.
func (t *transmitter) finishFrame() outcome {
	o := &t.outgoing
	buf := o.buf
	if t.timed {
		buf = t.passOn(len(buf))
	}
	if o.at != 0 {
		t.launch(buf)
	} else if st := t.launchRaw(o.ep, buf); st != 0 {
		return t.fail(st)
	}
	if t.timed {
		t.moved()
	} else {
		_ = t.dma.movers[Transmit].Done()
	}
	o.shown, o.published, o.held, o.out, o.copied = 0, false, false, nil, 0
	o.ep.delivery.sent(o.ep, o.m, o.psn, o.offset, o.length, o.credit, o.again)
	return frameSent
}

// fail gives up the frame in progress, whose message has failed.
func (t *transmitter) fail(st datasheet.Status) outcome {
	t.drop()
	t.ep.delivery.failed(t.ep, t.m, t.again, st)
	return frameFailed
}

// resume goes on with a frame that is held. It reports whether anything moved.
func (t *transmitter) resume() bool {
	o := &t.outgoing
	if t.waiting&transmitHooks != 0 {
		return false
	}
	if r := o.ep.flow; o.ep.era != o.era || o.again && o.psn-r.una >= r.nxt-r.una {
		// The connection has ended, or the frame has arrived after all: its memory
		// may be the host's again.
		t.drop()
		return true
	}
	t.dma.checkPulses(Transmit)
	gathered, shown := o.gathered, o.shown
	moved := t.feed() != frameWaiting || o.gathered != gathered || o.shown != shown
	if moved {
		t.dma.report(Transmit)
	}
	return moved
}

// drop gives up the frame that is being sent, if there is one.
func (t *transmitter) drop() {
	if t.published {
		t.progressive.Abort()
	}
	t.shown, t.published, t.held, t.out, t.copied = 0, false, false, nil, 0
	t.dma.movers[Transmit].Cancel()
	t.dma.report(Transmit)
}

// frame returns room for a data frame to a station, of n bytes of payload behind at others. It is
// nil if the wire takes no more now, or the NIC no other frame.
func (t *transmitter) frame(to *datasheet.MAC, at, n int) []byte {
	if !t.timed || n == 0 {
		return t.reserve(to, at+n)
	}
	if t.held || t.waiting&filterTransmit != 0 || t.busy && t.dma.movers[Transmit].Alone() {
		return nil
	}
	if t.stage == nil {
		t.stage = aligned(int(t.mtu))
	}
	return t.stage[:at+n]
}

// beginGather has hostTx begin with the frame in progress.
func (t *transmitter) beginGather() {
	if !t.bus.Instant() {
		t.due = t.read() + t.bus.Setup + t.bus.Takes(int(min(t.length, uint32(t.dma.config.Burst))))
	}
}

// fetched is how much of the burst of n bytes, at which hostTx is, has been moved: all or
// nothing. The next one has at most rest bytes.
func (t *transmitter) fetched(n, rest uint32) uint32 {
	if t.bus.Instant() || n == 0 {
		return n
	}
	if t.read() < t.due {
		return 0
	}
	t.due += t.bus.Takes(int(min(rest, uint32(t.dma.config.Burst))))
	return n
}

// mayMove, where transfers take their time, reports whether netTx is idle, and the wire has room for the frame in progress.
func (t *transmitter) mayMove() bool {
	if t.busy {
		return false
	}
	if t.out == nil || !t.published {
		// Other frames may have been sent since.
		t.toward(&t.ep.remote.mac)
		t.out = t.port.Reserve(len(t.buf))
	}
	return t.out != nil
}

// passOn gives the wire the first n bytes of the frame in progress. It returns the wire's
// frame.
func (t *transmitter) passOn(n int) []byte {
	copy(t.out[t.copied:n], t.buf[t.copied:n])
	t.copied = n
	return t.out
}

// moved notes that the transfer which netTx has begun is the wire's.
func (t *transmitter) moved() {
	tx := t.dma.movers[Transmit]
	_ = tx.Away()
	t.watch()
}

// watch looks whether netTx still moves bytes. It reports whether a transfer has ended.
func (t *transmitter) watch() (ended bool) {
	busy, all := time.Duration(0), time.Duration(0)
	if t.paced != nil {
		busy, all = t.paced.Left()
	}
	if t.busy = busy > 0; !t.busy {
		if ended = t.dma.movers[Transmit].Ended(); ended {
			t.dma.report(Transmit)
		}
	}
	t.coming = all > time.Nanosecond
	if t.events |= leaving; all <= 0 {
		t.events &^= leaving
	}
	return ended
}

// reserve reserves room on the wire for a frame of n bytes to a station. It returns nil if
// the wire takes no more now, or if a frame is held of which the wire has a part.
func (t *transmitter) reserve(to *datasheet.MAC, n int) []byte {
	if t.held && (!t.timed || t.published) || t.waiting&filterTransmit != 0 {
		return nil
	}
	t.toward(to)
	return t.port.Reserve(n)
}

// toward says to which station the next frame goes.
func (t *transmitter) toward(to *datasheet.MAC) {
	if t.peers != nil {
		t.peers.Toward(*to)
	}
}

// send sends a frame of no established connection, with a body unless that is nil, and
// zeros behind that up to h.Length. It returns false if the wire takes no more now.
func (t *transmitter) send(h *datasheet.Header, body *datasheet.ConnectBody) bool {
	if body != nil {
		h.Length = max(h.Length, datasheet.ConnectBodySize)
	}
	buf := t.reserve(&h.Destination, datasheet.HeaderSize+int(h.Length))
	if buf == nil {
		return false
	}
	t.sign(h)
	*datasheet.HeaderAt(buf) = *h
	if body != nil {
		*datasheet.ConnectBodyAt(buf[datasheet.HeaderSize:]) = *body
		clear(buf[datasheet.HeaderSize+datasheet.ConnectBodySize:])
	}
	t.launch(buf)
	return true
}

// sendAck sends an acknowledgement or a probe, which on an unreliable connection
// only say that this end lives. It returns false if the wire takes no more now.
func (t *transmitter) sendAck(ep *endpoint, which datasheet.FrameType) bool {
	buf := t.reserve(&ep.remote.mac, datasheet.HeaderSize)
	if buf == nil {
		return false
	}
	h := datasheet.HeaderAt(buf)
	*h = ep.outline
	h.Type = which
	if r := ep.flow; r != nil {
		r.tell(r.credit())
		h.PSN, h.Ack, h.Credit = r.nxt, r.expect, r.offered
		if which == datasheet.FrameAck {
			h.Extent, h.Offset, h.Message, h.Immediate = uint32(r.have), uint32(r.have>>32), r.twice, r.came
		}
	}
	t.launch(buf)
	return true
}

// launch sends a complete frame, unless a program drops it: then it is as if it
// had been lost.
func (t *transmitter) launch(buf []byte) {
	t.dropped = t.hooks&filterTransmit != 0 && !t.published && !t.filter(buf, datasheet.HeaderAt(buf).SourceEndpoint)
	if t.dropped {
		t.progress++
		t.count(datasheet.CounterFramesDropped, 1)
		return
	}
	if t.checksum {
		datasheet.HeaderAt(buf).Checksum = datasheet.FrameChecksumOf(buf)
	}
	if t.hooks&watching != 0 {
		t.show(true, buf)
	}
	t.handOver(int(datasheet.HeaderAt(buf).Length))
}

// handOver gives the wire a frame that stands for n bytes of payload.
func (t *transmitter) handOver(n int) {
	t.port.Commit()
	t.handed(n)
}

// handed notes that the wire was given a frame that stands for n bytes of payload.
func (t *transmitter) handed(n int) {
	t.events, t.dropped = t.events|t.departs, false
	t.progress++
	t.count(datasheet.CounterFramesSent, 1)
	t.count(datasheet.CounterBytesSent, uint64(n))
}

// flush lets the peers see the frames that were handed to the wire.
func (t *transmitter) flush() {
	if t.events&unflushed != 0 {
		t.events &^= unflushed
		t.port.Flush()
	}
}

// unlikeSends are the control bits of descriptors that are not begun like sends.
const unlikeSends = datasheet.ControlOpMask | datasheet.ControlQueueFence

// beginRDMA prepares the frames of an operation.
func (m *sending) beginRDMA() {
	switch m.control.bits.Op() {
	case datasheet.OpRDMAWrite:
		m.frames = datasheet.FrameWrite
	case datasheet.OpRDMARead:
		// A request carries none of the bytes: it is the frame behind the last of them.
		m.frames, m.cut, m.awaits = datasheet.FrameReadRequest, m.total, m.total
	}
}

// extend makes a data frame one of an RDMA operation.
func (m *sending) extend(h *datasheet.Header, x *datasheet.Extension) {
	h.Type, *x = m.frames, datasheet.Extension{}
	if m.frames != datasheet.FrameReadResponse {
		to := m.target()
		x.Address, x.Handle = to.address, to.handle
	}
	switch m.frames {
	case datasheet.FrameWrite:
		if h.Offset == 0 {
			m.request = h.PSN
		}
		x.Request = m.request
	case datasheet.FrameReadRequest:
		h.Flags &^= datasheet.FrameFirst | datasheet.FrameLast
		h.Offset = 0
	case datasheet.FrameReadResponse:
		x.Request = m.request
	}
}

// takesReceive reports whether the message takes a receive of the peer.
func (m *sending) takesReceive() bool {
	bits := m.control.bits
	return bits.Op() == datasheet.OpSend || bits.Op() == datasheet.OpRDMAWrite && bits&datasheet.ControlImmediate != 0
}

// launchRaw sends a complete raw frame. It refuses one of our own protocol, which
// could be mistaken for another endpoint's.
func (t *transmitter) launchRaw(ep *endpoint, buf []byte) datasheet.Status {
	if !isRaw(buf) {
		return datasheet.StatusFormatError
	}
	if t.asks(HookFilterTransmit) && (!t.filter(buf, ep.id) || !isRaw(buf)) {
		t.progress++
		t.count(datasheet.CounterFramesDropped, 1)
		return 0
	}
	if t.hooks&watching != 0 {
		t.show(true, buf)
	}
	t.handOver(len(buf))
	return 0
}
