package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Kind is a registered kind of endpoints. The core asks it when one is created, changed or
// destroyed. Functions may be nil, but for Check and Deliver.
type Kind struct {
	Connects bool // endpoints connect to another one; others are open to all, or closed.
	Queues   bool // they have work queues, whose sizes are checked.
	Tokens   bool // in those stand tokens, in host memory.
	SRAM     bool // they need device memory.
	Rights   bool // peers may have RDMA rights, and attributes may change.

	// Check names what is wrong with a new endpoint, besides what is with any.
	Check func(b *datasheet.CreateEndpointBody) Refusal
	// Number chooses the number of a new endpoint; false if there is none. Without it any will do.
	Number func(b *datasheet.CreateEndpointBody) (uint32, bool)
	// Create takes what a new endpoint needs besides its queues. The reply says what the
	// host is to know of it.
	Create func(ep *Endpoint, b *datasheet.CreateEndpointBody) (datasheet.EndpointCreated, Refusal)
	// Destroy gives back what create took.
	Destroy func(ep *Endpoint)
	// Deliver chooses the delivery of an endpoint, until it is connected.
	Deliver func(datasheet.Reliability) Delivery
	// Format is that of the queues, nil if there are none.
	Format Format
	// SetPayload writes an entry of the endpoint's payload table, in its place.
	SetPayload func(ep *Endpoint, b *datasheet.SetPayloadBody)
}

// Format knows what stands in the queues of a kind.
type Format interface {
	// Fetch takes the next message of a queue and copies what the host says of it into l.
	// What is wrong with that shows in l.status. It reports whether that is a sound send or receive of one piece of memory.
	Fetch(ep *Endpoint, q *WorkQueue, l *Layout) (usual bool)
	// Complete ends the oldest message of a queue, which is l: of length bytes, with
	// immediate data if st says so. st lacks StatusDone and the operation.
	Complete(ep *Endpoint, q *WorkQueue, l *Layout, length, immediate uint32, st datasheet.Status)
	// Destination decides where a message of extent bytes goes, with immediate data if it is tagged.
	// It returns st, the status of the receive, or what is wrong with that memory.
	Destination(ep *Endpoint, in *Receipt, st datasheet.Status, extent, immediate uint32, tagged bool) datasheet.Status
}

// Delivery carries the messages of endpoints of one kind. What a connection needs is in its
// endpoint.
type Delivery interface {
	// Open prepares an endpoint for its connection to peer.
	Open(ep *Endpoint, peer *datasheet.ConnectBody)
	// Close ends what open began.
	Close(ep *Endpoint)
	// Outstanding is the number behind the last message that the host has posted, and whether any is not
	// known to have arrived. It is zero without acknowledgements.
	Outstanding(ep *Endpoint) (posted uint32, unfinished bool)

	// Transmit sends up to budget frames. It reports whether the endpoint could send
	// more if the wire took it.
	Transmit(ep *Endpoint, budget int) bool
	// Sent takes note of a frame that has left: n bytes of m from offset on, with the
	// credit that it gave; retry says that it had been sent before.
	Sent(ep *Endpoint, m *Sending, psn, offset, n, credit uint32, retry bool)
	// Failed ends a message whose payload could not be read: the application took the
	// memory away while the message was under way.
	Failed(ep *Endpoint, m *Sending, retry bool, st datasheet.Status)
	// Flush ends the sends that are being worked on, the oldest with status first.
	Flush(ep *Endpoint, first datasheet.Status)

	// Posted takes note of receives that the host has posted.
	Posted(ep *Endpoint)
	// Take decides about a frame for the endpoint by its header. payload is whole only if the
	// frame has arrived whole, as all do that are no data frames.
	Take(ep *Endpoint, h *datasheet.Header, payload []byte) Verdict
	// Placed takes note of a data frame whose payload is where take said.
	Placed(ep *Endpoint, h *datasheet.Header)
}
