package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Raw frames are frames of other protocols than ours (SPEC.md 8.9). Endpoints of
// kind Frame send and take them, one for each descriptor, without a connection.

// frames is the kind of endpoints for raw frames. Once a frame has come it is a message
// like that of an unreliable VI.
type frames struct{ unreliableVI }

// rawFrames is the kind of those endpoints.
func rawFrames(k *transport) *kind {
	return &kind{queues: true, tokens: true, deliver: func(datasheet.Reliability) delivery { return frames{unreliableVI{k}} },
		check: func(b *datasheet.CreateEndpointBody) refusal {
			switch {
			case b.Options&^datasheet.EndpointPromiscuous != 0:
				return refusal{datasheet.ResultInvalidParameter, fieldOptions}
			case b.Reliability != datasheet.Unreliable:
				return refusal{datasheet.ResultInvalidReliability, fieldReliability}
			case b.MaxTransfer < datasheet.EthernetHeaderSize || b.MaxTransfer > uint32(k.port.MTU()):
				return refusal{datasheet.ResultInvalidMTU, fieldMaxTransfer}
			}
			return refusal{}
		},
		create: func(ep *endpoint, _ *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, refusal) {
			ep.state, ep.conn = datasheet.StateConnected, &unreliable{}
			k.takers = append(k.takers, ep)
			return datasheet.EndpointCreated{}, refusal{}
		}}
}

// close implements delivery.
func (k frames) close(ep *endpoint) {
	k.takers = slices.DeleteFunc(k.takers, func(other *endpoint) bool { return other == ep })
}

// sendRaw sends the frame that m is.
func (k *transport) sendRaw(ep *endpoint, m *sending) outcome {
	t := &k.tx
	var st datasheet.Status
	switch {
	case m.total < datasheet.EthernetHeaderSize:
		st = datasheet.StatusLengthError
	case m.control.bits&datasheet.ControlImmediate != 0:
		st = datasheet.StatusFormatError
	case t.held || t.waiting&transmitHooks != 0:
		return frameWaiting
	}
	if st == 0 {
		buf := t.frame(&ep.remote.mac, 0, max(int(m.total), datasheet.MinFrame))
		if buf == nil {
			return frameWaiting
		}
		clear(buf[m.total:])
		tx, behind := t.dma.movers[Transmit], int(ep.send.posted())
		plain := tx.Plain()
		if plain {
			st = t.regions.gather(buf[:m.total], &m.layout, 0, ep.ptag)
		}
		if st == 0 {
			if !plain || !tx.Whole(int(m.total), behind) {
				t.outgoing = outgoing{ep: ep, era: ep.era, m: m, buf: buf, length: m.total}
				return t.start(behind)
			}
			st = t.launchRaw(ep, buf)
		}
	}
	if st != 0 {
		ep.delivery.failed(ep, m, false, st)
		return frameFailed
	}
	ep.delivery.sent(ep, m, 0, 0, m.total, 0, false)
	return frameSent
}

// takeRaw handles a raw frame that has arrived.
func (r *lanes) takeRaw(buf []byte) {
	frame := buf
	ep := r.taker(frame)
	if ep == nil || len(frame) > r.port.MTU() {
		r.deliver(buf, nil, refused)
		return
	}
	r.countReceived(len(frame))
	if r.hooks&wholeFrames != 0 {
		if frame, ep = r.steerRaw(frame, ep); ep == nil {
			r.deliver(buf, nil, refused)
			return
		}
	}
	n := uint32(len(frame))
	r.header = datasheet.Header{
		Type: datasheet.FrameData, Flags: datasheet.FrameFirst | datasheet.FrameLast,
		DestinationEndpoint: ep.id, Message: unrel(ep).next, Length: uint16(n), Extent: n,
	}
	r.deliver(buf, frame, ep.delivery.take(ep, &r.header, frame))
}

// taker is the endpoint that takes a raw frame by the built-in rule: the oldest
// that would, nil if none does.
func (r *lanes) taker(frame []byte) *endpoint {
	to := datasheet.MAC(frame)
	for _, ep := range r.takers {
		if to == r.mac || to.IsMulticast() || ep.options&datasheet.EndpointPromiscuous != 0 {
			return ep
		}
	}
	return nil
}

// steerRaw is steer for a raw frame that ep is to take. It returns the frame and
// the endpoint that takes it, nil if it is dropped.
func (r *lanes) steerRaw(frame []byte, ep *endpoint) ([]byte, *endpoint) {
	if r.asks(HookFilterReceive) {
		shown, to, ok := r.filterReceive(frame, ep.id)
		if !ok || !isRaw(shown) {
			return nil, nil
		}
		frame, ep = shown, r.redirect(HookFilterReceive, ep, to)
	}
	if r.asks(HookDemultiplex) {
		to, entry := r.askDemultiplex(frame, ep.id)
		ep = r.redirect(HookDemultiplex, ep, to)
		r.choose(ep, entry)
	}
	return frame, ep
}

// redirect gives a raw frame that is for ep to another endpoint, if that can take
// it.
func (r *lanes) redirect(h Hook, ep *endpoint, to uint32) *endpoint {
	if other := r.endpoint(to); slices.Contains(r.takers, other) {
		return other
	}
	r.processor.Misled(h)
	return ep
}
