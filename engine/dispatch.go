package engine

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// demultiplex gives a sound frame to its receiver. Of data frames it looks at
// the header only.
func (e *Engine) demultiplex(h *datasheet.Header, payload []byte) core.Verdict {
	switch h.Type {
	case datasheet.FrameConnectRequest:
		return e.Setups.OnRequest(h, payload)
	case datasheet.FrameConnectAccept:
		return e.Setups.OnAccept(h, payload)
	case datasheet.FrameConnectReject:
		return e.Setups.OnReject(h)
	case datasheet.FrameDisconnect:
		return e.onDisconnect(h)
	}
	ep := e.Endpoint(h.DestinationEndpoint)
	if ep == nil || !ep.From(h) {
		switch h.Type {
		case datasheet.FrameData, datasheet.FrameWrite, datasheet.FrameReadRequest, datasheet.FrameReadResponse,
			datasheet.FrameCells:
			e.Rx.Unanswered = !e.Conns.AnswerUnknown(ep, h)
		case datasheet.FrameProbe:
			e.Conns.AnswerUnknown(ep, h)
		}
		return core.Refused
	}
	if ep.State == datasheet.StateConnectPending && ep.Setup != nil && ep.Setup.Accepting {
		e.Setups.Confirmed(ep)
	}
	if ep.State != datasheet.StateConnected {
		return core.Refused
	}
	return ep.Delivery.Take(ep, h, payload)
}

// onDisconnect handles the news that a connection has ended at the other side.
func (e *Engine) onDisconnect(h *datasheet.Header) core.Verdict {
	if h.DestinationEndpoint == 0 {
		if h.Flags&datasheet.FrameEcho != 0 {
			return e.vis.OnShortEcho(h)
		}
		return e.Setups.OnWithdrawal(h)
	}
	ep := e.Endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.SourceEndpoint != ep.Remote.Endpoint || h.Source != ep.Remote.MAC {
		return core.Refused
	}
	want := ep.Remote.OurKey
	if h.Flags&datasheet.FrameEcho != 0 {
		want = ep.Remote.TheirKey
	}
	if h.Key != want {
		return core.Refused
	}
	if ep.State == datasheet.StateConnectPending {
		e.Setups.End(ep, datasheet.ResultWithdrawn) // the client knows nothing of it
		return core.Taken
	}
	reason := datasheet.Result(h.Immediate)
	if h.Flags&datasheet.FrameEcho != 0 {
		reason = datasheet.ResultConnectionLost // its sender knows nothing of the connection
	} else if ok := false; ep.Flow != nil {
		if reason, ok = e.vis.EndReason(ep, h, reason); !ok {
			return core.Refused
		}
	}
	first := datasheet.StatusTransportError
	switch {
	case reason == datasheet.ResultRemoteDescriptor && ep.Flow != nil:
		first = datasheet.StatusRemoteDescriptor
	case reason == datasheet.ResultSuccess, reason == datasheet.ResultAborted, reason == datasheet.ResultRDMAProtection:
		first = datasheet.StatusFlushed
	}
	e.Conns.Fail(ep, first, reason, false)
	return core.Taken
}
