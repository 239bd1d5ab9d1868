package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// kind is what endpoints of one kind do in their own way. What a connection
// needs is in its endpoint.
type kind interface {
	// check names what is wrong with a new endpoint, besides what is with any.
	check(b *descriptors.CreateEndpointBody) refusal
	// connects reports whether an endpoint connects to another one. Others are open
	// from their creation on, and anybody may send them frames.
	connects() bool
	// open prepares an endpoint for its connection to peer, or for its use without.
	open(ep *endpoint, peer *descriptors.ConnectBody)
	// close ends what open began.
	close(ep *endpoint)

	// transmit sends up to budget frames. It reports whether the endpoint could send
	// more if the wire took it.
	transmit(ep *endpoint, budget int) bool
	// sent takes note of a frame that has left: n bytes of m from offset on, with the
	// credit that it gave; again says that it had been sent before.
	sent(ep *endpoint, m *sending, psn, offset, n, credit uint32, again bool)
	// failed ends a message whose payload could not be read: the application took the
	// memory away while the message was under way.
	failed(ep *endpoint, m *sending, again bool, st descriptors.Status)

	// flush ends the sends that are being worked on, the oldest with status first.
	flush(ep *endpoint, first descriptors.Status)

	// posted takes note of receives that the host has posted.
	posted(ep *endpoint)
	// take decides about a frame for the endpoint by its header.
	take(ep *endpoint, h *descriptors.Header) verdict
	// placed takes note of a data frame whose payload is where take said.
	placed(ep *endpoint, h *descriptors.Header)
}

// newKind finds the kind of a new endpoint.
func newKind(e *Engine, b *descriptors.CreateEndpointBody) (kind, refusal) {
	switch b.Kind {
	case descriptors.KindVI:
		if b.Reliability == descriptors.Unreliable {
			return unreliableVI{vi{e}}, refusal{}
		}
		return reliableVI{vi{e}}, refusal{}
	case descriptors.KindFrame:
		return frames{unreliableVI{vi{e}}}, refusal{}
	case descriptors.KindReceiveQueue:
		return receiveQueue{unreliableVI{vi{e}}}, refusal{}
	case descriptors.KindRing, descriptors.KindChannel:
		return nil, refusal{descriptors.ResultNotSupported, fieldKind}
	}
	return nil, refusal{descriptors.ResultInvalidParameter, fieldKind}
}

// vi is what all VIs of an engine have in common.
type vi struct{ *Engine }

func (vi) connects() bool   { return true }
func (vi) close(*endpoint)  {}
func (vi) posted(*endpoint) {}
func (vi) check(b *descriptors.CreateEndpointBody) refusal {
	if b.Options&^(descriptors.EndpointBreaks|descriptors.EndpointShares) != 0 ||
		b.Options&descriptors.EndpointBreaks != 0 && b.Reliability == descriptors.Unreliable {
		return refusal{descriptors.ResultInvalidParameter, fieldOptions}
	}
	return refusal{}
}
