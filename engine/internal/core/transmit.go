package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Transmitter sends frames: those of messages in turns, one at a time, and between
// them those that carry no payload.
type Transmitter struct {
	*Core
	Outgoing
	Box        *outbox                                      // nil where transfers take no time
	References [datasheet.MaxReferences]datasheet.Reference // in a frame whose payload is lent
	spare      []*Endpoint                                  // memory for ready
	alone      bool                                         // only one endpoint has something to send
	Dropped    bool                                         // the last frame, by a program
}

// Sending is a message on its way out.
type Sending struct {
	Layout
	Number  uint32 // of the message, or of the next if it takes no receive
	Cut     uint32 // bytes that have been cut into frames
	Begun   bool   // a frame has been cut
	AllCut  bool
	Frames  datasheet.FrameType // that it is cut into
	LastPSN uint32
	Mark    uint32 // of a wire that loses nothing, behind its last frame
	Awaits  uint32 // bytes of a read that have not come
	Request uint32 // Request of its frames (SPEC.md 8.13)
}

// Outgoing is the data frame that is being sent. Most leave in one go; one whose
// transfers the host decides is held until it has left, and meanwhile the wire is as if it were full.
// Where transfers take their time it is the frame that hostTx moves into the NIC, held until all of it is there.
type Outgoing struct {
	Held     bool
	Ep       *Endpoint
	Era      uint32 // of ep when the frame began
	M        *Sending
	Buf      []byte // the wire's; of transfers that take their time, the NIC's
	at       uint32 // where the payload starts in the frame; zero in a raw one
	psn      uint32
	offset   uint32 // in the message
	Length   uint32 // of the payload
	Gathered uint32 // of the payload, by hostTx
	shown    uint32 // of the payload, by netTx; zero once the frame has ended
	// published: the peer may have read some of it.
	published bool
	credit    uint32 // that the header gives
	retry     bool   // the frame was sent before
}

func newTransmitter(c *Core, p *Pipeline) Transmitter {
	t := Transmitter{Core: c}
	if c.Timed {
		t.Box = &outbox{t: &c.Tx, frames: make([]leaving, p.Buffers), instant: c.Bus.Instant()}
	}
	return t
}

// Outcome of an attempt to send a frame.
type Outcome int

const (
	FrameSent    Outcome = iota
	FrameWaiting         // for room on the wire, or for the host
	FrameFailed          // which has been dealt with
	frameCopied          // its payload cannot be lent
)

// setMemory gives the NIC a buffer for frames that leave.
func (t *Transmitter) setMemory(buffer int, memory []byte) { t.Box.frames[buffer].memory = memory }

// clear gives up the frame in progress.
func (t *Transmitter) clear() {
	if t.published {
		t.progressive.Abort()
	}
	if t.Outgoing, t.spare = (Outgoing{}), nil; t.Box != nil {
		t.Box.clear()
	}
}

// Transmit gives every endpoint that has something to send a turn. It reports
// whether anything went out.
func (t *Transmitter) Transmit() bool {
	before := t.Progress
	if t.Box != nil && t.Box.drain() {
		t.Progress++
	}
	if t.Held {
		// No other endpoint can send until this frame has left.
		if moved := t.resume(); t.Held {
			return moved
		}
	}
	turn := t.Ready.members
	t.alone = len(turn) == 1
	t.Ready.members, t.Events = t.spare[:0], t.Events&^OnReady
	var last *Endpoint // whose frame is held: the others are before it the next time
	for i, ep := range turn {
		turn[i], ep.Listed = nil, ep.Listed&^OnReady
		switch more := ep.State == datasheet.StateConnected && ep.Delivery.Transmit(ep, TransmitQuantum); {
		case more && t.Held && last == nil:
			last = ep
		case more:
			t.Ready.Add(ep)
		}
	}
	if last != nil {
		t.Ready.Add(last)
	}
	t.spare = turn[:0]
	if t.Box != nil && t.Box.drain() {
		t.Progress++
	}
	return t.Progress != before
}

// SendData sends the frame of m that starts at offset; retry says that it has
// been sent before.
func (t *Transmitter) SendData(ep *Endpoint, m *Sending, psn, offset uint32, flags datasheet.FrameFlags, retry bool) Outcome {
	n, at := min(m.Total-offset, ep.MaxPayload), datasheet.HeaderSize
	if offset < ep.Shortest && t.Lender != nil && ep.Flow != nil && m.Total > ep.MaxPayload {
		// The message of a ring goes ahead, and its payload can be lent: they do not fit one frame. It is cut alike
		// when it is sent again.
		n = ep.Shortest - offset
	}
	if m.Frames != datasheet.FrameData {
		n, at = min(n, ep.MaxPayload-datasheet.ExtensionSize), at+datasheet.ExtensionSize
	}
	if t.Waiting&TransmitHooks != 0 {
		return FrameWaiting
	}
	tx, behind := t.DMA.Movers[Transmit], framesIn(m.Total-offset-n, n)+int(ep.Send.Posted())
	if n >= LendFrom && offset >= ep.Shortest && m.Frames != datasheet.FrameReadResponse && t.Lends(ep) {
		if result := t.sendLent(ep, m, psn, offset, n, flags, behind, retry); result != frameCopied {
			return result
		}
	}
	var buf []byte
	if t.Box != nil {
		buf = t.Box.frame(&ep.Remote.MAC, at, int(n))
	} else {
		buf = t.Reserve(&ep.Remote.MAC, at+int(n))
	}
	if buf == nil {
		return FrameWaiting
	}
	credit := Head(buf, ep, m, psn, offset, n, flags)
	if n == 0 || n <= t.OneBurst && tx.Plain() {
		if st := t.Regions.Gather(buf[at:], &m.Layout, offset, ep.Ptag); st != 0 {
			ep.Delivery.Failed(ep, m, retry, st)
			return FrameFailed
		}
		if n == 0 || tx.Whole(int(n), behind) {
			t.Launch(buf)
			if behind == 0 && t.alone {
				t.Flush() // the peer need not wait for the book-keeping
			}
			ep.Delivery.Sent(ep, m, psn, offset, n, credit, retry)
			return FrameSent
		}
	}
	t.Outgoing = Outgoing{Ep: ep, Era: ep.Era, M: m, Buf: buf, at: uint32(at),
		psn: psn, offset: offset, Length: n, credit: credit, retry: retry}
	return t.Start(behind)
}

// Head writes the header of a data frame of m: n bytes from offset on. It returns the
// credit that the header gives.
//
// It is written field by field, each once and in its place: a header that is put
// together elsewhere and copied is read before the processor has written it, and
// waits for that (store forwarding: Intel 64 and IA-32 Architectures Optimization
// Reference Manual, 3.6.4).
func Head(buf []byte, ep *Endpoint, m *Sending, psn, offset, n uint32, flags datasheet.FrameFlags) (credit uint32) {
	if offset == 0 {
		flags |= datasheet.FrameFirst
	}
	if offset+n == m.Total {
		flags |= datasheet.FrameLast
	}
	if m.Control.Bits&datasheet.ControlImmediate != 0 {
		flags |= datasheet.FrameImmediate
	}
	h := datasheet.HeaderAt(buf)
	*h = ep.Outline
	h.Type, h.Flags, h.Length = datasheet.FrameData, ep.Outline.Flags|flags, uint16(n)
	h.PSN, h.Message, h.Extent, h.Offset, h.Immediate = psn, m.Number, m.Total, offset, m.Control.Immediate
	if r := ep.Flow; r != nil {
		credit = r.Credit()
		h.Ack, h.Credit = r.Expect, credit
	}
	if m.Frames != datasheet.FrameData {
		m.extend(h, datasheet.ExtensionAt(buf[datasheet.HeaderSize:]))
	}
	return credit
}

// Reserve reserves room on the wire for a frame of n bytes to a station. It returns nil if
// the wire takes no more now, or if a frame is held of which the wire has a part.
func (t *Transmitter) Reserve(to *datasheet.MAC, n int) []byte {
	if t.Waiting&filterTransmit != 0 || t.Box == nil && t.Held || t.Box != nil && t.Box.published {
		return nil
	}
	if t.Peers != nil {
		t.Peers.SetDestination(*to)
	}
	return t.Port.Reserve(n)
}

// send sends a frame of no established connection, with a body unless that is nil, and
// zeros behind that up to h.Length. It returns false if the wire takes no more now.
func (t *Transmitter) send(h *datasheet.Header, body *datasheet.ConnectBody) bool {
	if t.Box != nil && h.Type == datasheet.FrameDisconnect && !t.Box.empty() {
		return false // what the connection has sent goes first
	}
	if body != nil {
		h.Length = max(h.Length, datasheet.ConnectBodySize)
	}
	buf := t.Reserve(&h.Destination, datasheet.HeaderSize+int(h.Length))
	if buf == nil {
		return false
	}
	t.sign(h)
	*datasheet.HeaderAt(buf) = *h
	if body != nil {
		*datasheet.ConnectBodyAt(buf[datasheet.HeaderSize:]) = *body
		clear(buf[datasheet.HeaderSize+datasheet.ConnectBodySize:])
	}
	t.Launch(buf)
	return true
}

// SendAck sends an acknowledgement or a probe, which on an unreliable connection
// only say that this end lives. It returns false if the wire takes no more now.
func (t *Transmitter) SendAck(ep *Endpoint, which datasheet.FrameType) bool {
	buf := t.Reserve(&ep.Remote.MAC, datasheet.HeaderSize)
	if buf == nil {
		return false
	}
	h := datasheet.HeaderAt(buf)
	*h = ep.Outline
	h.Type = which
	if r := ep.Flow; r != nil {
		r.Tell(r.Credit())
		h.PSN, h.Ack, h.Credit = r.Nxt, r.Expect, r.Offered
		if which == datasheet.FrameAck {
			h.Extent, h.Offset, h.Message, h.Immediate = uint32(r.Have), uint32(r.Have>>32), r.Twice, r.Came
		}
	}
	t.Launch(buf)
	return true
}

// gather is hostTx: it moves the next burst of the frame in progress into the NIC.
func (t *Transmitter) gather() datasheet.Status {
	o := &t.Outgoing
	n := min(o.Length-o.Gathered, uint32(t.DMA.config.Burst))
	if n == 0 {
		return 0
	}
	at := o.at + o.Gathered
	st := t.Regions.Gather(o.Buf[at:at+n], &o.M.Layout, o.offset+o.Gathered, o.Ep.Ptag)
	if st == 0 {
		o.Gathered += n
	}
	return st
}

// fail gives up the frame in progress, whose message has failed.
func (t *Transmitter) fail(st datasheet.Status) Outcome {
	t.drop()
	t.Ep.Delivery.Failed(t.Ep, t.M, t.retry, st)
	return FrameFailed
}

// Launch sends a complete frame, unless a program drops it: then it is as if it
// had been lost.
func (t *Transmitter) Launch(buf []byte) {
	t.Dropped = t.Hooks&filterTransmit != 0 && !t.published && !t.filter(buf, datasheet.HeaderAt(buf).SourceEndpoint)
	if t.Dropped {
		t.Progress++
		t.Count(datasheet.CounterFramesDropped, 1)
		return
	}
	t.commit(buf)
}

// commit gives the wire a complete frame.
func (t *Transmitter) commit(buf []byte) {
	if t.Checksum {
		datasheet.HeaderAt(buf).Checksum = datasheet.FrameChecksumOf(buf)
	}
	if t.Hooks&Watching != 0 {
		t.Show(true, buf)
	}
	t.HandOver(int(datasheet.HeaderAt(buf).Length))
}

// HandOver gives the wire a frame that stands for n bytes of payload.
func (t *Transmitter) HandOver(n int) {
	t.Port.Commit()
	t.NoteSent(n)
}

// NoteSent notes that the wire was given a frame that stands for n bytes of payload.
func (t *Transmitter) NoteSent(n int) {
	t.Events, t.Dropped = t.Events|t.departs, false
	t.Progress++
	t.Count(datasheet.CounterFramesSent, 1)
	t.Count(datasheet.CounterBytesSent, uint64(n))
}

// Flush lets the peers see the frames that were handed to the wire.
func (t *Transmitter) Flush() {
	if t.Events&Unflushed != 0 {
		t.Events &^= Unflushed
		t.Port.Flush()
	}
}

// UnlikeSends are the control bits of descriptors that are not begun like sends.
const UnlikeSends = datasheet.ControlOpMask | datasheet.ControlQueueFence

// BeginRDMA prepares the frames of an operation.
func (m *Sending) BeginRDMA() {
	switch m.Control.Bits.Op() {
	case datasheet.OpRDMAWrite:
		m.Frames = datasheet.FrameWrite
	case datasheet.OpRDMARead:
		// A request carries none of the bytes: it is the frame behind the last of them.
		m.Frames, m.Cut, m.Awaits = datasheet.FrameReadRequest, m.Total, m.Total
	}
}

// extend makes a data frame one of an RDMA operation.
func (m *Sending) extend(h *datasheet.Header, x *datasheet.Extension) {
	h.Type, *x = m.Frames, datasheet.Extension{}
	if m.Frames != datasheet.FrameReadResponse {
		to := m.Target()
		x.Address, x.Handle = to.Address, to.Handle
	}
	switch m.Frames {
	case datasheet.FrameWrite:
		if h.Offset == 0 {
			m.Request = h.PSN
		}
		x.Request = m.Request
	case datasheet.FrameReadRequest:
		h.Flags &^= datasheet.FrameFirst | datasheet.FrameLast
		h.Offset = 0
	case datasheet.FrameReadResponse:
		x.Request = m.Request
	}
}

// TakesReceive reports whether the message takes a receive of the peer.
func (m *Sending) TakesReceive() bool {
	bits := m.Control.Bits
	return bits.Op() == datasheet.OpSend || bits.Op() == datasheet.OpRDMAWrite && bits&datasheet.ControlImmediate != 0
}

// RawFrame returns room for a raw frame of n bytes to a station, nil if there is none now.
func (t *Transmitter) RawFrame(to *datasheet.MAC, n int) []byte {
	if t.Box != nil {
		return t.Box.frame(to, 0, n)
	}
	return t.Reserve(to, n)
}

// LaunchRaw sends a complete raw frame. It refuses one of our own protocol, which
// could be mistaken for another endpoint's.
func (t *Transmitter) LaunchRaw(ep *Endpoint, buf []byte) datasheet.Status {
	if !IsRaw(buf) {
		return datasheet.StatusFormatError
	}
	if t.Asks(HookFilterTransmit) && (!t.filter(buf, ep.ID) || !IsRaw(buf)) {
		t.Progress++
		t.Count(datasheet.CounterFramesDropped, 1)
		return 0
	}
	if t.Hooks&Watching != 0 {
		t.Show(true, buf)
	}
	t.HandOver(len(buf))
	return 0
}
