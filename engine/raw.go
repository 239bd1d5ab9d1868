package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Raw frames are frames of other protocols than ours (SPEC.md 8.9). Endpoints of
// kind Frame send and take them, one for each descriptor, without a connection.

// frames is the kind of endpoints for raw frames. Once a frame has come it is a message
// like that of an unreliable VI.
type frames struct{ unreliableVI }

func (frames) connects() bool { return false }
func (frames) check(e *Engine, b *descriptors.CreateEndpointBody) refusal {
	switch {
	case b.Options&descriptors.EndpointOptionsReserved != 0:
		return refusal{descriptors.ResultInvalidParameter, fieldOptions}
	case b.Reliability != descriptors.Unreliable:
		return refusal{descriptors.ResultInvalidReliability, fieldReliability}
	case b.MaxTransfer < descriptors.EthernetHeaderSize || b.MaxTransfer > uint32(e.port.MTU()):
		return refusal{descriptors.ResultInvalidMTU, fieldMaxTransfer}
	}
	return refusal{}
}

func (frames) open(e *Engine, ep *endpoint, _ *descriptors.ConnectBody) {
	ep.unrel = &unreliable{}
	e.takers = append(e.takers, ep)
}

func (frames) close(e *Engine, ep *endpoint) {
	e.takers = slices.DeleteFunc(e.takers, func(other *endpoint) bool { return other == ep })
}

func (frames) transmit(e *Engine, ep *endpoint, budget int) bool {
	return e.transmitUnreliable(ep, budget, (*Engine).sendRaw)
}

// isRaw says of a frame that it is an Ethernet frame of another protocol than ours.
func isRaw(frame []byte) bool {
	const at = descriptors.EthernetHeaderSize - len(descriptors.EtherType)
	return len(frame) >= descriptors.EthernetHeaderSize && [2]byte(frame[at:]) != descriptors.EtherType
}

// sendRaw sends the frame that m is.
func (e *Engine) sendRaw(ep *endpoint, m *sending) outcome {
	if m.total < descriptors.EthernetHeaderSize {
		ep.kind.failed(e, ep, m, false, descriptors.StatusLengthError)
		return frameFailed
	}
	if m.control.bits&descriptors.ControlImmediate != 0 {
		ep.kind.failed(e, ep, m, false, descriptors.StatusFormatError)
		return frameFailed
	}
	if e.out.held || e.waiting&transmitHooks != 0 {
		return frameWaiting
	}
	buf := e.port.Reserve(max(int(m.total), descriptors.MinFrame))
	if buf == nil {
		return frameWaiting
	}
	clear(buf[m.total:])
	behind := int(ep.send.posted())
	if tx := e.movers[Transmit]; tx.Plain() {
		st := e.regions.gather(buf[:m.total], &m.layout, 0, ep.ptag)
		if st == 0 && tx.Whole(int(m.total), behind) {
			if st = e.launchRaw(ep, buf); st == 0 {
				ep.kind.sent(e, ep, m, 0, 0, m.total, 0, false)
				return frameSent
			}
		}
		if st != 0 {
			ep.kind.failed(e, ep, m, false, st)
			return frameFailed
		}
	}
	e.out = outgoing{ep: ep, era: ep.era, m: m, buf: buf, length: m.total}
	return e.startSend(behind)
}

// launchRaw sends a complete raw frame. It refuses one of our own protocol, which
// could be mistaken for another endpoint's.
func (e *Engine) launchRaw(ep *endpoint, buf []byte) descriptors.Status {
	if !isRaw(buf) {
		return descriptors.StatusFormatError
	}
	if e.asks(HookFilterTransmit) && (!e.filterTransmit(buf, ep.id) || !isRaw(buf)) {
		e.progress++
		e.count(descriptors.CounterFramesDropped, 1)
		return 0
	}
	e.handOver(len(buf))
	return 0
}

// takeRaw handles a raw frame that has arrived.
func (e *Engine) takeRaw(buf []byte) {
	in, frame := &e.in, buf
	ep := e.taker(frame)
	if ep == nil || len(frame) > e.port.MTU() {
		e.deliver(buf, nil, refused)
		return
	}
	e.count(descriptors.CounterFramesReceived, 1)
	e.count(descriptors.CounterBytesReceived, uint64(len(frame)))
	if e.hooks&wholeFrames != 0 {
		if frame, ep = e.steerRaw(frame, ep); ep == nil {
			e.deliver(buf, nil, refused)
			return
		}
	}
	n := uint32(len(frame))
	in.header = descriptors.Header{
		Type: descriptors.FrameData, Flags: descriptors.FrameFirst | descriptors.FrameLast,
		DestinationEndpoint: ep.id, Message: ep.unrel.next, Length: uint16(n), Extent: n,
	}
	e.deliver(buf, frame, ep.kind.take(e, ep, &in.header))
}

// taker is the endpoint that takes a raw frame by the built-in rule: the oldest
// that would, nil if none does.
func (e *Engine) taker(frame []byte) *endpoint {
	to := descriptors.MAC(frame)
	for _, ep := range e.takers {
		if to == e.mac || to.IsMulticast() || ep.options&descriptors.EndpointPromiscuous != 0 {
			return ep
		}
	}
	return nil
}

// steerRaw is steer for a raw frame that ep is to take. It returns the frame and
// the endpoint that takes it, nil if it is dropped.
func (e *Engine) steerRaw(frame []byte, ep *endpoint) ([]byte, *endpoint) {
	if e.asks(HookFilterReceive) {
		shown, to, ok := e.filterReceive(frame, ep.id)
		if !ok || !isRaw(shown) {
			return nil, nil
		}
		frame, ep = shown, e.redirect(HookFilterReceive, ep, to)
	}
	if e.asks(HookDemultiplex) {
		to, entry := e.askDemultiplex(frame, ep.id)
		ep = e.redirect(HookDemultiplex, ep, to)
		e.choose(ep, entry)
	}
	return frame, ep
}

// redirect gives a raw frame that is for ep to another endpoint, if that can take
// it.
func (e *Engine) redirect(h Hook, ep *endpoint, to uint32) *endpoint {
	if other := e.endpoint(to); slices.Contains(e.takers, other) {
		return other
	}
	e.processor.Misled(h)
	return ep
}
