package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// demultiplex gives a sound frame to whom it is for. Of data frames it looks at
// the header only.
func (e *Engine) demultiplex(h *datasheet.Header, payload []byte) verdict {
	switch h.Type {
	case datasheet.FrameConnectRequest:
		return e.setups.onRequest(h, payload)
	case datasheet.FrameConnectAccept:
		return e.setups.onAccept(h, payload)
	case datasheet.FrameConnectReject:
		return e.setups.onReject(h)
	case datasheet.FrameDisconnect:
		return e.onDisconnect(h)
	}
	ep := e.endpoint(h.DestinationEndpoint)
	if ep == nil || !ep.from(h) {
		switch h.Type {
		case datasheet.FrameData, datasheet.FrameWrite, datasheet.FrameReadRequest, datasheet.FrameReadResponse,
			datasheet.FrameCells:
			e.rx.unanswered = !e.conns.answerUnknown(ep, h)
		case datasheet.FrameProbe:
			e.conns.answerUnknown(ep, h)
		}
		return refused
	}
	if ep.state == datasheet.StateConnectPending && ep.setup != nil && ep.setup.accepting {
		e.setups.confirmed(ep)
	}
	if ep.state != datasheet.StateConnected {
		return refused
	}
	return ep.kind.take(ep, h, payload)
}

// onDisconnect handles the news that a connection has ended at the other side.
func (e *Engine) onDisconnect(h *datasheet.Header) verdict {
	if h.DestinationEndpoint == 0 {
		if h.Flags&datasheet.FrameEcho != 0 {
			return e.onShortEcho(h)
		}
		return e.setups.onWithdrawal(h)
	}
	ep := e.endpoint(h.DestinationEndpoint)
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
		e.setups.end(ep, datasheet.ResultWithdrawn) // the client knows nothing of it
		return taken
	}
	reason := datasheet.Result(h.Immediate)
	switch r := ep.rel; {
	case h.Flags&datasheet.FrameEcho != 0:
		reason = datasheet.ResultConnectionLost // its sender knows nothing of the connection
	case r == nil:
	case !r.deliveredUpTo(h.Message):
		return refused
	case reason == datasheet.ResultAborted && h.Extent == r.done:
		reason = datasheet.ResultSuccess // all that it may have cut off is here
	case reason == datasheet.ResultRDMAProtection && !r.refusedAt(h.PSN):
		return refused
	}
	first := datasheet.StatusTransportError
	switch {
	case reason == datasheet.ResultRemoteDescriptor && ep.rel != nil:
		first = datasheet.StatusRemoteDescriptor
	case reason == datasheet.ResultSuccess, reason == datasheet.ResultAborted, reason == datasheet.ResultRDMAProtection:
		first = datasheet.StatusFlushed
	}
	e.conns.fail(ep, first, reason, false)
	return taken
}

// onShortEcho handles the news that the other side knows nothing of a connection on which this one has
// sent a short frame.
func (e *Engine) onShortEcho(h *datasheet.Header) verdict {
	for _, ep := range e.living {
		if to := &ep.remote; ep.rel != nil && ep.rel.shorts && to.endpoint == h.SourceEndpoint && to.mac == h.Source && uint32(uint16(to.theirKey)) == h.Key {
			e.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, false)
			return taken
		}
	}
	return refused
}
