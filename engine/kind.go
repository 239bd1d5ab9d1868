package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// kind is what a kind of endpoints registers: what the core asks of it when an endpoint is
// created, changed and destroyed. Functions may be nil but for check and deliver.
type kind struct {
	connects bool // endpoints connect to another one; others are open to all, or to nobody
	queues   bool // they have work queues, whose sizes are checked
	tokens   bool // in those stand tokens, in host memory
	sram     bool // they need device memory
	rights   bool // peers may have RDMA rights, and attributes may change

	// check names what is wrong with a new endpoint, besides what is with any.
	check func(b *datasheet.CreateEndpointBody) refusal
	// number chooses the number of a new endpoint; false if there is none. Without it any will do.
	number func(b *datasheet.CreateEndpointBody) (uint32, bool)
	// create takes what a new endpoint needs besides its queues. The reply says what the
	// host is to know of it.
	create func(ep *endpoint, b *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, refusal)
	// destroy gives back what create took.
	destroy func(ep *endpoint)
	// deliver is how messages of an endpoint are delivered, until it is connected.
	deliver func(datasheet.Reliability) delivery
	// setPayload writes an entry of the endpoint's payload table, in its place.
	setPayload func(ep *endpoint, b *datasheet.SetPayloadBody)
}

// delivery carries the messages of endpoints of one kind. What a connection needs is in its
// endpoint.
type delivery interface {
	// open prepares an endpoint for its connection to peer.
	open(ep *endpoint, peer *datasheet.ConnectBody)
	// close ends what open began.
	close(ep *endpoint)
	// outstanding is the number behind the last message that the host has posted, and whether any is not
	// known to have arrived. It is zero without acknowledgements.
	outstanding(ep *endpoint) (posted uint32, unfinished bool)

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
	// complete ends the oldest message of a queue, which is l: of length bytes, with
	// immediate data if st says so. st lacks StatusDone and the operation.
	complete(ep *endpoint, q *workQueue, l *layout, length, immediate uint32, st datasheet.Status)

	// posted takes note of receives that the host has posted.
	posted(ep *endpoint)
	// take decides about a frame for the endpoint by its header. payload is whole only if the
	// frame has arrived whole, as all do that are no data frames.
	take(ep *endpoint, h *datasheet.Header, payload []byte) verdict
	// placed takes note of a data frame whose payload is where take said.
	placed(ep *endpoint, h *datasheet.Header)
}
