package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// Provider is VIA's word for what implements VIs on one NIC. This package puts
// VIA's rules on top: who may destroy what, which object belongs to whom, which
// code an error has. Driver makes one of a driver.NIC.
//
// All methods of a provider and of its objects may be called from several
// goroutines.
type Provider interface {
	MemoryProvider
	EndpointProvider

	// Attributes of the NIC; they do not change.
	Attributes() NICAttributes
	// OnEvent sets who is told of asynchronous events, one at a time and not in
	// the middle of a call of this package. EventCatastrophic comes once to each
	// that is set, and is logged with its reason.
	OnEvent(func(descriptors.Event))
	// Explain says which code an error of this provider has, what can be done
	// about it, and what caused it.
	Explain(err error) (code Code, hint string, cause error)
	// Poll makes progress on a NIC that runs only when it is called, and reports
	// whether there was any.
	Poll() bool
	// Close frees everything, whatever state it is in.
	Close() error
}

// MemoryProvider is the part of a Provider that protects memory.
type MemoryProvider interface {
	CreatePtag(ctx context.Context) (uint32, error)
	DestroyPtag(ctx context.Context, ptag uint32) error
	// AllocMemory returns size bytes of zeroed memory, registered.
	AllocMemory(ctx context.Context, size int, ptag uint32, access descriptors.Access) (ProviderMemory, error)
	// RegisterMemory registers b, which lies in memory that the NIC can reach.
	RegisterMemory(ctx context.Context, b []byte, ptag uint32, access descriptors.Access) (ProviderMemory, error)
}

// EndpointProvider is the part of a Provider that makes queues and connections.
type EndpointProvider interface {
	CreateCQ(ctx context.Context, entries int) (ProviderCQ, error)
	// CreateVI takes attributes without zeroes. The ptag is given as a number;
	// the CQs may be nil.
	CreateVI(ctx context.Context, a VIAttributes, ptag uint32, send, recv ProviderCQ) (ProviderVI, error)
	ConnectWait(ctx context.Context, local []byte) (ProviderConnection, error)
}

// ProviderMemory is one registration of memory.
type ProviderMemory interface {
	Bytes() []byte
	// Address by which descriptors name the memory.
	Address() uint64
	// Handle by which descriptors name the registration.
	Handle() uint32
	// Deregister ends the registration, unless posted descriptors lie in it.
	// Memory from AllocMemory is freed with its last registration.
	Deregister(ctx context.Context) error
}

// ProviderCQ is a completion queue. Done returns ErrNotDone bare.
type ProviderCQ interface {
	Done() (descriptors.Completion, error)
	Wait(ctx context.Context) (descriptors.Completion, error)
	// Number by which events name the CQ.
	Number() uint32
	Entries() int
	Destroy(ctx context.Context) error
}

// ProviderVI is a VI. The methods of DataPath allocate nothing unless they fail.
type ProviderVI interface {
	DataPath
	// Number by which completions and events name the VI, 1 to MaxVIs.
	Number() uint32
	// Own makes d one that no other VI takes.
	Own(d *Descriptor)
	ConnectRequest(ctx context.Context, remote Address, local []byte) (Remote, error)
	Disconnect(ctx context.Context) error
	// Query returns the state and who is at the other end.
	Query(ctx context.Context) (VIState, error)
	// SetPayload writes an entry of the payload table: length bytes at address of
	// the region handle, or nothing if both are zero.
	SetPayload(ctx context.Context, entry int, address uint64, handle, length uint32) error
	// Queued returns how many descriptors are posted and not taken back.
	Queued() (send, recv int)
	Destroy(ctx context.Context) error
}

// DataPath is the part of a VI that moves messages. ErrNotDone, ErrQueueEmpty
// and ErrQueueFull are returned bare; a descriptor that completed in error is
// returned with a *StatusError.
type DataPath interface {
	PostSend(d *Descriptor) error
	PostRecv(d *Descriptor) error
	PostSendBatch(ds []*Descriptor) (int, error)
	PostRecvBatch(ds []*Descriptor) (int, error)
	SendDone() (*Descriptor, error)
	RecvDone() (*Descriptor, error)
	// SendDoneBatch and RecvDoneBatch return a descriptor that completed in error
	// alone.
	SendDoneBatch(into []*Descriptor) (int, error)
	RecvDoneBatch(into []*Descriptor) (int, error)
	SendWait(ctx context.Context) (*Descriptor, error)
	RecvWait(ctx context.Context) (*Descriptor, error)
}

// ProviderConnection is a connection request that waits for an answer.
type ProviderConnection interface {
	// Remote returns who asks, with which attributes, and the discriminator that
	// it calls its own.
	Remote() (Remote, []byte)
	// Accept leaves the request open if it fails because of the VI.
	Accept(ctx context.Context, vi ProviderVI) (Remote, error)
	Reject(ctx context.Context) error
}
