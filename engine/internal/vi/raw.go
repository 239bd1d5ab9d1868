package vi

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Raw frames are frames of other protocols than ours (SPEC.md 8.9). Endpoints of
// kind Frame send and take them, one for each descriptor, without a connection.

// frames is the kind of endpoints for raw frames. Once a frame has come it is a message
// like that of an unreliable VI.
type frames struct{ Unreliable }

func rawFrames(k *Transport) *core.Kind {
	return &core.Kind{Queues: true, Tokens: true, Format: tokens{k.Core},
		Deliver: func(datasheet.Reliability) core.Delivery { return frames{Unreliable{k}} },
		Check: func(b *datasheet.CreateEndpointBody) core.Refusal {
			return core.FirstOf([]core.Check{
				{b.Options&^datasheet.EndpointPromiscuous != 0, datasheet.ResultInvalidParameter, core.FieldOptions},
				{b.Reliability != datasheet.Unreliable, datasheet.ResultInvalidReliability, core.Field(b, &b.Reliability)},
				{b.MaxTransfer < datasheet.EthernetHeaderSize || b.MaxTransfer > uint32(k.Port.MTU()), datasheet.ResultInvalidMTU, core.Field(b, &b.MaxTransfer)},
			})
		},
		Create: func(ep *core.Endpoint, _ *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, core.Refusal) {
			ep.State, ep.Conn = datasheet.StateConnected, &unreliable{}
			k.Takers = append(k.Takers, ep)
			return datasheet.EndpointCreated{}, core.Refusal{}
		}}
}

func (k frames) Close(ep *core.Endpoint) {
	k.Takers = slices.DeleteFunc(k.Takers, func(other *core.Endpoint) bool { return other == ep })
}

// sendRaw sends the frame that m is.
func (k *Transport) sendRaw(ep *core.Endpoint, m *core.Sending) core.Outcome {
	t := &k.Tx
	var st datasheet.Status
	switch {
	case m.Total < datasheet.EthernetHeaderSize:
		st = datasheet.StatusLengthError
	case m.Control.Bits&datasheet.ControlImmediate != 0:
		st = datasheet.StatusFormatError
	case t.Held || t.Waiting&core.TransmitHooks != 0:
		return core.FrameWaiting
	}
	if st == 0 {
		buf := t.RawFrame(&ep.Remote.MAC, max(int(m.Total), datasheet.MinFrame))
		if buf == nil {
			return core.FrameWaiting
		}
		clear(buf[m.Total:])
		tx, behind := t.DMA.Movers[core.Transmit], int(ep.Send.Posted())
		plain := tx.Plain()
		if plain {
			st = t.Regions.Gather(buf[:m.Total], &m.Layout, 0, ep.Ptag)
		}
		if st == 0 {
			if !plain || !tx.Whole(int(m.Total), behind) {
				t.Outgoing = core.Outgoing{Ep: ep, Era: ep.Era, M: m, Buf: buf, Length: m.Total}
				return t.Start(behind)
			}
			st = t.LaunchRaw(ep, buf)
		}
	}
	if st != 0 {
		ep.Delivery.Failed(ep, m, false, st)
		return core.FrameFailed
	}
	ep.Delivery.Sent(ep, m, 0, 0, m.Total, 0, false)
	return core.FrameSent
}

// takeRaw handles a raw frame that has arrived.
func takeRaw(r *core.Receiver, buf []byte) {
	frame := buf
	ep := taker(r, frame)
	if ep == nil || len(frame) > r.Port.MTU() {
		r.Deliver(buf, nil, core.Refused)
		return
	}
	r.CountReceived(len(frame))
	if r.Hooks&core.WholeFrames != 0 {
		if frame, ep = steerRaw(r, frame, ep); ep == nil {
			r.Deliver(buf, nil, core.Refused)
			return
		}
	}
	n := uint32(len(frame))
	r.Header = datasheet.Header{
		Type: datasheet.FrameData, Flags: datasheet.FrameFirst | datasheet.FrameLast,
		DestinationEndpoint: ep.ID, Message: unrel(ep).next, Length: uint16(n), Extent: n,
	}
	r.Deliver(buf, frame, ep.Delivery.Take(ep, &r.Header, frame))
}

// taker is the endpoint that takes a raw frame by the built-in rule: the oldest
// that would, nil if none does.
func taker(r *core.Receiver, frame []byte) *core.Endpoint {
	to := datasheet.MAC(frame)
	for _, ep := range r.Takers {
		if to == r.MAC || to.IsMulticast() || ep.Options&datasheet.EndpointPromiscuous != 0 {
			return ep
		}
	}
	return nil
}

// steerRaw is steer for a raw frame that ep is to take. It returns the frame and
// the endpoint that takes it, nil if it is dropped.
func steerRaw(r *core.Receiver, frame []byte, ep *core.Endpoint) ([]byte, *core.Endpoint) {
	if r.Asks(core.HookFilterReceive) {
		shown, to, ok := r.FilterReceive(frame, ep.ID)
		if !ok || !core.IsRaw(shown) {
			return nil, nil
		}
		frame, ep = shown, redirect(r, core.HookFilterReceive, ep, to)
	}
	if r.Asks(core.HookDemultiplex) {
		to, entry := r.AskDemultiplex(frame, ep.ID)
		ep = redirect(r, core.HookDemultiplex, ep, to)
		r.Choose(ep, entry)
	}
	return frame, ep
}

// redirect gives a raw frame that is for ep to another endpoint, if that can take
// it.
func redirect(r *core.Receiver, h core.Hook, ep *core.Endpoint, to uint32) *core.Endpoint {
	if other := r.Endpoint(to); slices.Contains(r.Takers, other) {
		return other
	}
	r.Processor.Misled(h)
	return ep
}
