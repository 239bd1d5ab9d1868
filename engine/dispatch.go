package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// demultiplex gives a sound frame to whom it is for. Of data frames it looks at
// the header only.
func (e *Engine) demultiplex(h *descriptors.Header, payload []byte) verdict {
	switch h.Type {
	case descriptors.FrameConnectRequest:
		return e.setups.onRequest(h, payload)
	case descriptors.FrameConnectAccept:
		return e.setups.onAccept(h, payload)
	case descriptors.FrameConnectReject:
		return e.setups.onReject(h)
	case descriptors.FrameDisconnect:
		return e.onDisconnect(h)
	}
	ep := e.endpoint(h.DestinationEndpoint)
	if ep == nil || !ep.from(h) {
		switch h.Type {
		case descriptors.FrameData, descriptors.FrameWrite, descriptors.FrameReadRequest, descriptors.FrameReadResponse,
			descriptors.FrameCells:
			e.rx.unanswered = !e.conns.answerUnknown(ep, h)
		case descriptors.FrameProbe:
			e.conns.answerUnknown(ep, h)
		}
		return refused
	}
	if ep.state == descriptors.StateConnectPending && ep.setup != nil && ep.setup.accepting {
		e.setups.confirmed(ep)
	}
	if ep.state != descriptors.StateConnected {
		return refused
	}
	return ep.kind.take(ep, h, payload)
}

// onDisconnect handles the news that a connection has ended at the other side.
func (e *Engine) onDisconnect(h *descriptors.Header) verdict {
	if h.DestinationEndpoint == 0 {
		if h.Flags&descriptors.FrameEcho != 0 {
			return e.onShortEcho(h)
		}
		return e.setups.onWithdrawal(h)
	}
	ep := e.endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key == 0 || h.SourceEndpoint != ep.remote.endpoint || h.Source != ep.remote.mac {
		return refused
	}
	want := ep.remote.ourKey
	if h.Flags&descriptors.FrameEcho != 0 {
		want = ep.remote.theirKey
	}
	if h.Key != want {
		return refused
	}
	if ep.state == descriptors.StateConnectPending {
		e.setups.end(ep, descriptors.ResultWithdrawn) // the client knows nothing of it
		return taken
	}
	reason := descriptors.Result(h.Immediate)
	switch r := ep.rel; {
	case h.Flags&descriptors.FrameEcho != 0:
		reason = descriptors.ResultConnectionLost // its sender knows nothing of the connection
	case r == nil:
	case !r.deliveredUpTo(h.Message):
		return refused
	case reason == descriptors.ResultAborted && h.Extent == r.done:
		reason = descriptors.ResultSuccess // all that it may have cut off is here
	case reason == descriptors.ResultRDMAProtection && !r.refusedAt(h.PSN):
		return refused
	}
	first := descriptors.StatusTransportError
	switch {
	case reason == descriptors.ResultRemoteDescriptor && ep.rel != nil:
		first = descriptors.StatusRemoteDescriptor
	case reason == descriptors.ResultSuccess, reason == descriptors.ResultAborted, reason == descriptors.ResultRDMAProtection:
		first = descriptors.StatusFlushed
	}
	e.conns.fail(ep, first, reason, false)
	return taken
}

// onShortEcho handles the news that the other side knows nothing of a connection on which this one has
// sent a short frame.
func (e *Engine) onShortEcho(h *descriptors.Header) verdict {
	for _, ep := range e.living {
		if to := &ep.remote; ep.rel != nil && ep.rel.shorts && to.endpoint == h.SourceEndpoint && to.mac == h.Source && uint32(uint16(to.theirKey)) == h.Key {
			e.conns.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, false)
			return taken
		}
	}
	return refused
}
