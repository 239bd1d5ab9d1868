package via

import (
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// AsyncCode says what an asynchronous error is about. AsyncCode values 0 to 10
// are VIA's (vipl.h).
type AsyncCode = datasheet.EventCode

// Asynchronous errors.
const (
	// AsyncPostDescriptor: a descriptor that was posted cannot be used, and its
	// status cannot be written.
	AsyncPostDescriptor = datasheet.EventPostDescriptor
	// AsyncConnectionLost: the VI is in the error state. AsyncError.Reason says why.
	AsyncConnectionLost = datasheet.EventConnectionLost
	// AsyncReceiveQueueEmpty: a message was dropped for want of a receive
	// descriptor, on an unreliable VI or one with NeedReceives.
	AsyncReceiveQueueEmpty = datasheet.EventReceiveQueueEmpty
	// AsyncVIOverrun: a doorbell named more descriptors than the queue holds.
	AsyncVIOverrun = datasheet.EventVIOverrun
	// AsyncRDMAWriteProtection: the other end wrote, without immediate data, what it
	// may not. AsyncRDMAWriteAbort: likewise, after some of it had landed.
	// AsyncRDMAReadProtection: it read what it may not. AsyncError.Descriptor is the
	// address that it gave then, and Detail the memory handle.
	AsyncRDMAWriteProtection = datasheet.EventRDMAWriteProtection
	AsyncRDMAWriteAbort      = datasheet.EventRDMAWriteAbort
	AsyncRDMAReadProtection  = datasheet.EventRDMAReadProtection
	// AsyncRDMAWriteData and AsyncRDMATransport are VIA's, and never come: what is
	// damaged or lost is sent again.
	AsyncRDMAWriteData = datasheet.EventRDMAWriteData
	AsyncRDMATransport = datasheet.EventRDMATransport
	// AsyncCompletionProtection: the status of a descriptor could not be written.
	AsyncCompletionProtection = datasheet.EventCompletionProtect
	// AsyncCatastrophic: the NIC has failed or is gone. Posts and waits fail with
	// ErrDevice from then on; what is left is to close the NIC.
	AsyncCatastrophic = datasheet.EventCatastrophic
	// AsyncCQOverrun: a completion queue was full; its VIs are in the error
	// state.
	AsyncCQOverrun = datasheet.EventCQOverrun
	// AsyncLink: the link went up (Detail 1) or down (0).
	AsyncLink = datasheet.EventLink
)

// Resource says what an AsyncError concerns (vipl.h values).
type Resource uint8

// Resources.
const (
	ResourceNIC Resource = iota
	ResourceVI
	ResourceCQ
	ResourceDescriptor
)

func (r Resource) String() string {
	switch r {
	case ResourceVI:
		return "VI"
	case ResourceCQ:
		return "CQ"
	case ResourceDescriptor:
		return "descriptor"
	}
	return "NIC"
}

// Operation says what a descriptor was for (vipl.h values).
type Operation uint8

// Operations.
const (
	OperationSend Operation = iota
	OperationReceive
	OperationRDMAWrite
	// OperationRemoteRDMAWrite is an RDMA write of the peer.
	OperationRemoteRDMAWrite
	OperationRDMARead
)

var operations = [...]string{"send", "receive", "RDMA write", "RDMA write of the peer", "RDMA read"}

func (o Operation) String() string {
	if int(o) < len(operations) {
		return operations[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// AsyncError is an error that no call could return, because it happened between
// calls or at the other end's doing.
type AsyncError struct {
	NIC      *NIC
	Code     AsyncCode
	Resource Resource
	// Operation that failed, if the error is one of an operation: it is OperationSend of
	// all others, and of AsyncVIOverrun, which does not tell.
	Operation Operation
	// VI and CQ concerned; nil if none, or destroyed meanwhile.
	VI *VI
	CQ *CQ
	// Descriptor is the application address of the descriptor with which it
	// happened, zero if none; of RDMA what the other end wanted.
	Descriptor uint64
	// Detail depends on the code: 1 or 0 for AsyncLink, the doorbell's value for
	// AsyncVIOverrun, a result of SPEC.md 8.7 for AsyncConnectionLost, the fault code
	// for AsyncCatastrophic, a memory handle of RDMA.
	Detail uint32
}

// Reason says how a connection ended that AsyncConnectionLost is about:
// ErrDisconnected, ErrPeerLost, or an error that wraps ErrConnectionBroken and says
// what broke it. It is nil for other codes.
func (a AsyncError) Reason() error {
	if a.Code != AsyncConnectionLost {
		return nil
	}
	end := driver.ConnectionEnd(a.Detail)
	if end == ErrConnectionBroken && a.Detail <= math.MaxUint16 {
		return fmt.Errorf("%w: %v", end, datasheet.Result(a.Detail))
	}
	return end
}

// OnError sets the handler of asynchronous errors. It is called for one at a time, in
// order, on a goroutine of its own, and may call any method. Of errors that come
// faster than it takes them 1024 wait, and further ones are dropped.
//
// AsyncCatastrophic is not dropped: each handler gets it once, also one that is set
// when the NIC has failed already. It comes within a second, whether or not the
// program uses the NIC; a vfio-user server that runs on without its device may delay
// it by some seconds.
//
// A nil handler restores the default, a log entry. A link that comes up and a peer
// that disconnects are logged at level debug. What a peer can cause with each message
// is logged at most once a second and VI, with a count.
func (n *NIC) OnError(f func(AsyncError)) {
	if f == nil {
		n.OnEvent(nil)
		return
	}
	n.OnEvent(func(e datasheet.Event) { f(n.asyncError(e)) })
}

// asyncError says in this package's words what e tells.
func (n *NIC) asyncError(e datasheet.Event) AsyncError {
	a := AsyncError{NIC: n, Code: e.Code, Descriptor: e.Descriptor, Detail: e.Detail}
	if e.Endpoint != 0 {
		a.VI, a.Resource = n.VI(e.Endpoint), ResourceVI
	}
	if e.CQ != datasheet.NoCQ && e.Code == AsyncCQOverrun {
		a.CQ, a.Resource = n.CQ(e.CQ), ResourceCQ
	}
	switch e.Code {
	case AsyncPostDescriptor, AsyncCompletionProtection:
		a.Resource, a.Detail = ResourceDescriptor, 0
		a.Operation = Operation(e.Detail & uint32(datasheet.StatusOpMask) / uint32(datasheet.StatusOpReceive))
	case AsyncReceiveQueueEmpty:
		a.Operation = OperationReceive
	case AsyncRDMAWriteProtection, AsyncRDMAWriteData, AsyncRDMAWriteAbort:
		a.Operation = OperationRemoteRDMAWrite
	case AsyncRDMAReadProtection, AsyncRDMATransport:
		a.Operation = OperationRDMARead
	}
	return a
}
