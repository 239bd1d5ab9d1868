package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// reserve reserves room on the wire for a frame with n bytes of payload. It returns
// nil if the wire takes no more now, or if a frame is held.
func (e *Engine) reserve(n int) []byte {
	if e.out.held || e.waiting.Has(HookFilterTransmit) {
		return nil
	}
	return e.port.Reserve(descriptors.HeaderSize + n)
}

// send sends a frame of no established connection, with a body unless that is nil. It
// returns false if the wire takes no more now.
func (e *Engine) send(h *descriptors.Header, body *descriptors.ConnectBody) bool {
	if body != nil {
		h.Length = descriptors.ConnectBodySize
	}
	buf := e.reserve(int(h.Length))
	if buf == nil {
		return false
	}
	e.sign(h)
	*descriptors.HeaderAt(buf) = *h
	if body != nil {
		*descriptors.ConnectBodyAt(buf[descriptors.HeaderSize:]) = *body
	}
	e.launch(buf)
	return true
}

// sign fills in what is the same in all frames of this NIC.
func (e *Engine) sign(h *descriptors.Header) {
	h.Source, h.EtherType, h.Version = e.mac, descriptors.EtherType, descriptors.WireVersion
	if e.checksum {
		h.Flags |= descriptors.FrameChecksum
	}
}

// launch sends a complete frame, unless a program drops it: then it is as if it
// had been lost.
func (e *Engine) launch(buf []byte) {
	if e.asks(HookFilterTransmit) && !e.out.published && !e.filterTransmit(buf, descriptors.HeaderAt(buf).SourceEndpoint) {
		e.progress++
		e.count(descriptors.CounterFramesDropped, 1)
		return
	}
	if e.checksum {
		descriptors.HeaderAt(buf).Checksum = descriptors.FrameChecksumOf(buf)
	}
	e.handOver(len(buf) - descriptors.HeaderSize)
}

// handOver gives the wire a frame that stands for n bytes of payload.
func (e *Engine) handOver(n int) {
	e.port.Commit()
	e.committed = true
	e.progress++
	e.count(descriptors.CounterFramesSent, 1)
	e.count(descriptors.CounterBytesSent, uint64(n))
}

// accept checks a frame that has arrived whole and copies its header out.
func (e *Engine) accept(buf []byte) (payload []byte, ok bool) {
	on := descriptors.HeaderAt(buf)
	if on == nil {
		return nil, false
	}
	h := &e.in.header
	*h = *on
	switch {
	case wellFormed(h, len(buf)):
		buf = buf[:descriptors.HeaderSize+int(h.Length)]
	case h.Flags&descriptors.FrameReference == 0 || e.lender == nil || !ours(h, descriptors.FrameFlagsReserved) ||
		h.Type != descriptors.FrameData: // and so it cannot refer to its payload either
		return nil, false
	}
	switch {
	case h.Flags&descriptors.FrameChecksum != 0:
		if descriptors.FrameChecksumOf(buf) != h.Checksum {
			e.count(descriptors.CounterChecksumErrors, 1)
			return nil, false
		}
	case e.checksum:
		e.count(descriptors.CounterChecksumErrors, 1)
		return nil, false
	}
	return buf[descriptors.HeaderSize:], h.Destination == e.mac || h.Destination == descriptors.Broadcast && forAnybody(h)
}

// wellFormed checks what a header says of itself, in a frame of n bytes that
// carries its payload.
func wellFormed(h *descriptors.Header, n int) bool {
	return ours(h, descriptors.FrameFlagsReserved|descriptors.FrameReference) && int(h.Length) <= n-descriptors.HeaderSize
}

// ours checks what is the same in all headers; zero are flags that are not set.
func ours(h *descriptors.Header, zero descriptors.FrameFlags) bool {
	return h.EtherType == descriptors.EtherType && h.Version == descriptors.WireVersion &&
		h.Flags&zero == 0 && !h.Source.IsMulticast()
}

// forAnybody says whether a frame may be broadcast: connect requests and their
// withdrawal, whose sender does not know who will answer.
func forAnybody(h *descriptors.Header) bool {
	return h.Type == descriptors.FrameConnectRequest ||
		h.Type == descriptors.FrameDisconnect && h.DestinationEndpoint == 0
}

// demultiplex gives a sound frame to whom it is for. Of data frames it looks at
// the header only.
func (e *Engine) demultiplex(h *descriptors.Header, payload []byte) verdict {
	switch h.Type {
	case descriptors.FrameConnectRequest:
		return e.onConnectRequest(h, payload)
	case descriptors.FrameConnectAccept:
		return e.onConnectAccept(h, payload)
	case descriptors.FrameConnectReject:
		return e.onConnectReject(h)
	case descriptors.FrameDisconnect:
		return e.onDisconnect(h)
	}
	ep := e.endpoint(h.DestinationEndpoint)
	if ep == nil || h.Key != ep.remote.ourKey || h.Key == 0 || h.SourceEndpoint != ep.remote.endpoint || h.Source != ep.remote.mac {
		if h.Type == descriptors.FrameData || h.Type == descriptors.FrameProbe {
			e.answerStranger(ep, h)
		}
		return refused
	}
	if ep.state == descriptors.StateConnectPending && ep.setup != nil && ep.setup.accepting {
		e.confirmed(ep)
	}
	if ep.state != descriptors.StateConnected {
		return refused
	}
	return ep.kind.take(e, ep, h)
}

// answerStranger tells the sender of a frame for a connection that does not
// exist (any more) so.
func (e *Engine) answerStranger(ep *endpoint, h *descriptors.Header) {
	if ep != nil && h.Key != 0 && ep.epitaph.ourKey == h.Key && ep.epitaph.mac == h.Source && ep.epitaph.endpoint == h.SourceEndpoint {
		e.sendEpitaph(ep)
		return
	}
	reply := descriptors.Header{
		Destination: h.Source, Type: descriptors.FrameDisconnect, Flags: descriptors.FrameEcho,
		DestinationEndpoint: h.SourceEndpoint, SourceEndpoint: h.DestinationEndpoint, Key: h.Key,
		Immediate: uint32(descriptors.ResultConnectionLost),
	}
	e.send(&reply, nil)
}

// sendEpitaph tells the peer of a connection that has ended how it ended. It
// returns false if the wire takes no more now.
func (e *Engine) sendEpitaph(ep *endpoint) bool {
	p := &ep.epitaph
	h := descriptors.Header{
		Destination: p.mac, Type: descriptors.FrameDisconnect,
		DestinationEndpoint: p.endpoint, SourceEndpoint: ep.id, Key: p.theirKey,
		Message: p.taken, Extent: p.posted, Immediate: uint32(p.reason),
	}
	return e.send(&h, nil)
}

// onDisconnect handles the news that a connection has ended at the other side.
func (e *Engine) onDisconnect(h *descriptors.Header) verdict {
	if h.DestinationEndpoint == 0 {
		return e.onWithdrawal(h)
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
		e.endSetup(ep, descriptors.ResultWithdrawn) // the client knows nothing of it
		return taken
	}
	reason := descriptors.Result(h.Immediate)
	switch r := ep.rel; {
	case h.Flags&descriptors.FrameEcho != 0:
		reason = descriptors.ResultConnectionLost // its sender knows nothing of the connection
	case r == nil:
	case !e.deliveredUpTo(ep, h.Message):
		return refused
	case reason == descriptors.ResultAborted && h.Extent == r.done:
		reason = descriptors.ResultSuccess // all that it may have cut off is here
	}
	first := descriptors.StatusTransportError
	switch {
	case reason == descriptors.ResultRemoteDescriptor && ep.rel != nil:
		first = descriptors.StatusRemoteDescriptor
	case reason == descriptors.ResultSuccess, reason == descriptors.ResultAborted:
		first = descriptors.StatusFlushed
	}
	e.fail(ep, first, reason, false)
	return taken
}
