package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// unreliable is the state of a connected endpoint whose messages are not
// acknowledged.
type unreliable struct {
	out      sending
	nextSend uint32 // number of the next message

	in      receipt          // open from a message's first frame on until its last, or until one is missing
	next    uint32           // number of the first message that has not begun to come
	receive bool             // a receive descriptor is in work
	fetched datasheet.Status // of that descriptor

	liveness
}

// unreliableVI is the kind of VIs whose messages are not acknowledged.
type unreliableVI struct{ *transport }

func (k unreliableVI) open(ep *endpoint, peer *datasheet.ConnectBody) {
	u := &unreliable{liveness: liveness{heard: k.now}}
	if ep.conn = u; peer.Options&datasheet.ConnectProbes != 0 {
		ep.alive = &u.liveness
	}
}

// hear notes that the peer lives.
func (k unreliableVI) hear(ep *endpoint) { unrel(ep).hear(&k.clock) }

func (unreliableVI) close(*endpoint)                      {}
func (unreliableVI) outstanding(*endpoint) (uint32, bool) { return 0, false }
func (unreliableVI) posted(*endpoint)                     {}

// transmit implements kind, for raw frames too.
func (k unreliableVI) transmit(ep *endpoint, budget int) bool {
	u, q := unrel(ep), &ep.send
	m := &u.out
	for range budget {
		if !m.begun {
			if q.posted() == 0 {
				return false
			}
			k.begin(ep, m, u.nextSend)
			if m.status != 0 {
				m.begun = false
				k.complete(ep, q, &m.layout, 0, 0, m.status)
				continue
			}
			u.nextSend++
		}
		var o outcome
		if ep.connects {
			o = k.tx.sendData(ep, m, 0, m.cut, 0, false)
		} else {
			o = k.sendRaw(ep, m)
		}
		if o == frameWaiting {
			return true
		}
	}
	return m.begun || q.posted() > 0
}

func (k unreliableVI) sent(ep *endpoint, m *sending, _, _, n, _ uint32, _ bool) {
	if m.cut += n; m.cut == m.total {
		m.begun = false
		k.count(datasheet.CounterMessagesSent, 1)
		k.complete(ep, &ep.send, &m.layout, m.total, 0, 0)
	}
}

func (k unreliableVI) failed(ep *endpoint, m *sending, _ bool, st datasheet.Status) {
	m.begun = false
	k.complete(ep, &ep.send, &m.layout, 0, 0, st)
}

// take implements kind. Messages are taken whole, in order of their frames and of their
// numbers, or not at all.
func (k unreliableVI) take(ep *endpoint, h *datasheet.Header, _ []byte) verdict {
	u := unrel(ep)
	u.hear(&k.clock)
	switch h.Type {
	case datasheet.FrameData:
	case datasheet.FrameProbe:
		k.tx.sendAck(ep, datasheet.FrameAck) // if there is no room the peer asks again
		return taken
	case datasheet.FrameAck:
		return taken
	case datasheet.FrameWrite:
		if ep.rights&datasheet.AccessRDMAWrite == 0 || k.rx.extension.Request != 0 {
			return refused
		}
	default:
		return refused
	}
	in := &u.in
	switch {
	case h.Length == 0 && h.Extent != 0, uint64(h.Offset)+uint64(h.Length) > uint64(h.Extent), h.Extent < ep.shortest:
		return refused
	case h.Flags&datasheet.FrameFirst != 0:
		if h.Offset != 0 || h.Extent > ep.maxTransfer || int32(h.Message-u.next) < 0 {
			return refused
		}
		u.next, in.open = h.Message+1, false
		in.extent, in.received, in.immediate, in.flags = h.Extent, 0, 0, 0
		in.written = h.Type == datasheet.FrameWrite
		if in.written && h.Flags&datasheet.FrameImmediate == 0 {
			in.open, in.status = true, 0
			break
		}
		if !u.receive {
			if !k.takeReceive(ep, in) {
				k.count(datasheet.CounterReceiveQueueEmpty, 1)
				if k.format == nil && ep.connects { // others may lose too many for an event each
					k.event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: ep.id, CQ: datasheet.NoCQ})
				}
				return taken
			}
			u.receive, u.fetched = true, in.status
		}
		if in.open = true; in.written {
			in.status = u.fetched
			break
		}
		in.status = k.destination(ep, in, u.fetched, h)
	case !in.open || h.Message != u.next-1 || h.Extent != in.extent || h.Offset < in.received || in.written != (h.Type == datasheet.FrameWrite):
		// It is of another message, or a copy of what has come.
		return refused
	case h.Offset > in.received:
		// A frame is missing: the rest of the message is lost, its descriptor waits
		// for the next one.
		in.open = false
		return refused
	}
	if in.written {
		k.aimWrite(ep, h, in)
	} else {
		k.rx.aim(ep, in, in.status)
	}
	return placing
}

// placed implements kind: the message is complete if it is whole.
func (k unreliableVI) placed(ep *endpoint, h *datasheet.Header) {
	u := unrel(ep)
	in := &u.in
	in.take(h, k.rx.status)
	if in.written {
		in.flags |= datasheet.StatusOpRDMAWrite
		if in.flags&datasheet.StatusImmediate == 0 {
			k.placedWrite(ep, h, in)
			return
		}
	}
	if in.status == 0 && in.received != in.extent {
		return
	}
	u.receive, in.open = false, false
	length := in.received
	if in.status != 0 {
		length = 0
	} else {
		k.count(datasheet.CounterMessagesReceived, 1)
	}
	k.complete(ep, &ep.recv, &in.layout, length, in.immediate, in.status|in.flags)
}

// flush implements kind.
func (k unreliableVI) flush(ep *endpoint, first datasheet.Status) {
	if u := unrel(ep); u != nil && u.out.begun {
		k.failed(ep, &u.out, false, first)
	}
}
