package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// demultiplex gives a sound frame to whom it is for. Of data frames it looks at
// the header only.
func (e *Engine) demultiplex(h *datasheet.Header, payload []byte) verdict {
	switch h.Type {
	case datasheet.FrameConnectRequest:
		return e.core.setups.onRequest(h, payload)
	case datasheet.FrameConnectAccept:
		return e.core.setups.onAccept(h, payload)
	case datasheet.FrameConnectReject:
		return e.core.setups.onReject(h)
	case datasheet.FrameDisconnect:
		return e.onDisconnect(h)
	}
	ep := e.core.endpoint(h.DestinationEndpoint)
	if ep == nil || !ep.from(h) {
		switch h.Type {
		case datasheet.FrameData, datasheet.FrameWrite, datasheet.FrameReadRequest, datasheet.FrameReadResponse,
			datasheet.FrameCells:
			e.core.rx.unanswered = !e.core.conns.answerUnknown(ep, h)
		case datasheet.FrameProbe:
			e.core.conns.answerUnknown(ep, h)
		}
		return refused
	}
	if ep.state == datasheet.StateConnectPending && ep.setup != nil && ep.setup.accepting {
		e.core.setups.confirmed(ep)
	}
	if ep.state != datasheet.StateConnected {
		return refused
	}
	return ep.delivery.take(ep, h, payload)
}

// onDisconnect handles the news that a connection has ended at the other side.
func (e *Engine) onDisconnect(h *datasheet.Header) verdict {
	if h.DestinationEndpoint == 0 {
		if h.Flags&datasheet.FrameEcho != 0 {
			return e.vis.onShortEcho(h)
		}
		return e.core.setups.onWithdrawal(h)
	}
	ep := e.core.endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.SourceEndpoint != ep.remote.endpoint || h.Source != ep.remote.mac {
		return refused
	}
	want := ep.remote.ourKey
	if h.Flags&datasheet.FrameEcho != 0 {
		want = ep.remote.theirKey
	}
	if h.Key != want {
		return refused
	}
	if ep.state == datasheet.StateConnectPending {
		e.core.setups.end(ep, datasheet.ResultWithdrawn) // the client knows nothing of it
		return taken
	}
	reason := datasheet.Result(h.Immediate)
	if h.Flags&datasheet.FrameEcho != 0 {
		reason = datasheet.ResultConnectionLost // its sender knows nothing of the connection
	} else if ok := false; ep.flow != nil {
		if reason, ok = e.vis.lastWords(ep, h, reason); !ok {
			return refused
		}
	}
	first := datasheet.StatusTransportError
	switch {
	case reason == datasheet.ResultRemoteDescriptor && ep.flow != nil:
		first = datasheet.StatusRemoteDescriptor
	case reason == datasheet.ResultSuccess, reason == datasheet.ResultAborted, reason == datasheet.ResultRDMAProtection:
		first = datasheet.StatusFlushed
	}
	e.core.conns.fail(ep, first, reason, false)
	return taken
}
