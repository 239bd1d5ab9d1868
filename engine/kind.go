package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// kind is what endpoints of one kind do in their own way. Its values hold nothing: what
// a connection needs is in its endpoint.
type kind interface {
	// check names what is wrong with a new endpoint, besides what is with any.
	check(e *Engine, b *descriptors.CreateEndpointBody) refusal
	// connects reports whether an endpoint connects to another one. Others are open
	// from their creation on, and anybody may send them frames.
	connects() bool
	// open prepares an endpoint for its connection to peer, or for its use without.
	open(e *Engine, ep *endpoint, peer *descriptors.ConnectBody)
	// close ends what open began.
	close(e *Engine, ep *endpoint)

	// transmit sends up to budget frames. It reports whether the endpoint could send
	// more if the wire took it.
	transmit(e *Engine, ep *endpoint, budget int) bool
	// sent takes note of a frame that has left: n bytes of m from offset on, with the
	// credit that it gave; again says that it had been sent before.
	sent(e *Engine, ep *endpoint, m *sending, psn, offset, n, credit uint32, again bool)
	// failed ends a message whose payload could not be read: the application took the
	// memory away while the message was under way.
	failed(e *Engine, ep *endpoint, m *sending, again bool, st descriptors.Status)

	// take decides about a frame for the endpoint by its header.
	take(e *Engine, ep *endpoint, h *descriptors.Header) verdict
	// placed takes note of a data frame whose payload is where take said.
	placed(e *Engine, ep *endpoint, h *descriptors.Header)
}

// newKind finds the kind of a new endpoint.
func newKind(b *descriptors.CreateEndpointBody) (kind, refusal) {
	switch b.Kind {
	case descriptors.KindVI:
		if b.Reliability == descriptors.Unreliable {
			return unreliableVI{}, refusal{}
		}
		return reliableVI{}, refusal{}
	case descriptors.KindFrame:
		return frames{}, refusal{}
	case descriptors.KindRing, descriptors.KindChannel:
		return nil, refusal{descriptors.ResultNotSupported, fieldKind}
	}
	return nil, refusal{descriptors.ResultInvalidParameter, fieldKind}
}

// vi is what all VIs have in common.
type vi struct{}

func (vi) connects() bool           { return true }
func (vi) close(*Engine, *endpoint) {}
func (vi) check(_ *Engine, b *descriptors.CreateEndpointBody) refusal {
	if b.Options != 0 {
		return refusal{descriptors.ResultInvalidParameter, fieldOptions}
	}
	return refusal{}
}
