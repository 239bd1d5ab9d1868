package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// kind is what endpoints of one kind do in their own way. What a connection
// needs is in its endpoint.
type kind interface {
	// check names what is wrong with a new endpoint, besides what is with any.
	check(b *datasheet.CreateEndpointBody) refusal
	// create takes what a new endpoint needs besides its queues. The reply says what the
	// host is to know of it.
	create(ep *endpoint) (reply datasheet.EndpointCreated, why refusal)
	// destroy gives back what create took.
	destroy(ep *endpoint)
	// connects reports whether an endpoint connects to another one. Others are open
	// from their creation on, and anybody may send them frames.
	connects() bool
	// open prepares an endpoint for its connection to peer, or for its use without.
	open(ep *endpoint, peer *datasheet.ConnectBody)
	// close ends what open began.
	close(ep *endpoint)

	// fetch takes the next message of a queue and copies what the host says of it into l.
	// What is wrong with that shows in l.status. Where every message passes, a VI's fetch
	// and complete are called past the interface: four such calls cost a message 20 ns of 470
	// (BenchmarkEcho/inline/64).
	fetch(ep *endpoint, q *workQueue, l *layout)
	// complete ends the oldest message of a queue, which is l: of length bytes, with
	// immediate data if st says so. st lacks StatusDone and the operation.
	complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status)

	// transmit sends up to budget frames. It reports whether the endpoint could send
	// more if the wire took it.
	transmit(ep *endpoint, budget int) bool
	// sent takes note of a frame that has left: n bytes of m from offset on, with the
	// credit that it gave; again says that it had been sent before.
	sent(ep *endpoint, m *sending, psn, offset, n, credit uint32, again bool)
	// failed ends a message whose payload could not be read: the application took the
	// memory away while the message was under way.
	failed(ep *endpoint, m *sending, again bool, st datasheet.Status)

	// flush ends the sends that are being worked on, the oldest with status first.
	flush(ep *endpoint, first datasheet.Status)

	// posted takes note of receives that the host has posted.
	posted(ep *endpoint)
	// destination decides where a message goes of which h is the first frame that has come.
	// It returns st, the status of the receive, or what is wrong with that memory.
	destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status
	// take decides about a frame for the endpoint by its header. payload is whole only if the
	// frame has arrived whole, as all do that are no data frames.
	take(ep *endpoint, h *datasheet.Header, payload []byte) verdict
	// placed takes note of a data frame whose payload is where take said.
	placed(ep *endpoint, h *datasheet.Header)
}

// vi is what all VIs of an engine have in common.
type vi struct{ *core }

func (vi) connects() bool         { return true }
func (vi) close(*endpoint)        {}
func (vi) posted(*endpoint)       {}
func (k vi) destroy(ep *endpoint) { k.regions.forgetRings(ep) }
func (k vi) create(ep *endpoint) (reply datasheet.EndpointCreated, why refusal) {
	if ep.options&datasheet.EndpointEager != 0 {
		var ok bool
		if reply, ok = k.regions.pushRings(ep); !ok {
			return datasheet.EndpointCreated{}, refusal{datasheet.ResultResource, fieldOptions}
		}
	}
	return reply, why
}
func (k vi) fetch(ep *endpoint, q *workQueue, l *layout) { k.regions.fetch(ep, q, l) }
func (k vi) complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status) {
	k.cqs.complete(ep, q, l, length, immediate, st)
}
func (k vi) check(b *datasheet.CreateEndpointBody) refusal {
	switch {
	case b.Options&^(datasheet.EndpointBreaks|datasheet.EndpointShares|datasheet.EndpointEager) != 0,
		b.Options&datasheet.EndpointBreaks != 0 && b.Reliability == datasheet.Unreliable:
		return refusal{datasheet.ResultInvalidParameter, fieldOptions}
	case b.Options&datasheet.EndpointEager != 0 && k.regions.sram.bytes == nil:
		return refusal{datasheet.ResultNotSupported, fieldOptions}
	}
	return refusal{}
}

// destination implements kind: a message goes to the memory of its receive descriptor, or where
// an entry of the payload table says, which a program has chosen.
func (k vi) destination(ep *endpoint, in *receipt, st datasheet.Status, h *datasheet.Header) datasheet.Status {
	room, entry := in.total, k.rx.entry
	if in.tabled = entry != nil; in.tabled {
		l := &in.entry
		l.segments = append(l.segments[:0], *entry)
		l.total, l.at, l.base, l.memory, l.peer = entry.length, 0, 0, nil, false
		room = l.total
	}
	switch {
	case st != 0:
		return st
	case h.Extent > room:
		return datasheet.StatusLengthError
	case in.tabled:
		return k.regions.check(&in.entry, ep.ptag, true)
	}
	return 0
}

// allows says what is wrong with an RDMA operation of the endpoint that is sound.
func (ep *endpoint) allows(op datasheet.Control) datasheet.Status {
	right := datasheet.AccessRDMAWrite
	if op == datasheet.OpRDMARead {
		right = datasheet.AccessRDMARead
	}
	switch {
	case !ep.kind.connects(), right == datasheet.AccessRDMARead && ep.rel == nil:
		return datasheet.StatusFormatError
	case ep.allowed&right == 0:
		return datasheet.StatusRDMAProtection
	}
	return 0
}
