package via

import "fmt"

// Code is a VIA return code as an error: the sentinels of this package. Test
// for one with errors.Is. Values 1 to 16 are VIA's own numbers (vipl.h; 15 and
// 16 are names from a later header, see SEMANTICS.md); from 32 on they are
// ours, and most refine a code of VIA's, which they also match.
type Code uint8

// VIA's return codes.
const (
	// ErrNotDone: nothing has completed yet.
	ErrNotDone Code = 1
	// ErrInvalidParameter: an argument makes no sense, or names an object of
	// another NIC or one that is gone.
	ErrInvalidParameter Code = 2
	// ErrResource: out of something, or the object is still in use.
	ErrResource Code = 3
	// ErrTimeout: the deadline passed. The error also matches
	// context.DeadlineExceeded.
	ErrTimeout Code = 4
	// ErrReject: the remote side turned the connection down.
	ErrReject Code = 5
	// ErrInvalidReliability: the level is not supported, or the two ends of a
	// connection differ.
	ErrInvalidReliability Code = 6
	// ErrInvalidMTU: the maximum transfer size is too large, or the two ends of
	// a connection differ.
	ErrInvalidMTU Code = 7
	// ErrInvalidQoS: the quality of service is not supported. No NIC that this
	// package drives has any to choose from, so nothing returns it yet.
	ErrInvalidQoS Code = 8
	// ErrInvalidPtag: no such protection tag.
	ErrInvalidPtag Code = 9
	// ErrInvalidRDMARead: RDMA read is not supported.
	ErrInvalidRDMARead Code = 10
	// ErrDescriptor: a descriptor completed in error. It is returned together
	// with the error.
	ErrDescriptor Code = 11
	// ErrInvalidState: the VI is in the wrong state for this.
	ErrInvalidState Code = 12
	// ErrNameService: a name could not be resolved. This package has no name
	// service; providers that have one return it.
	ErrNameService Code = 13
	// ErrNoMatch: no one waits with this discriminator.
	ErrNoMatch Code = 14
	// ErrNotReachable: the remote host cannot be reached.
	ErrNotReachable Code = 15
	// ErrNotSupported: the NIC or the back end cannot do this.
	ErrNotSupported Code = 16
)

// Codes of our own, each with the VIA code that it refines. The last six refine
// none: VIA has no code for them. ErrDisconnected, ErrPeerLost and
// ErrConnectionBroken say how a connection ended that this side has not ended: the
// errors of descriptors that completed because of it match one of them besides
// ErrDescriptor, and so does AsyncError.Reason.
const (
	// ErrQueueFull refines ErrResource: as many descriptors are posted as the
	// queue holds.
	ErrQueueFull Code = 32 + iota
	// ErrQueueEmpty refines ErrDescriptor: nothing is posted, so that there is
	// nothing to wait for. VIA says so with a descriptor error and no
	// descriptor.
	ErrQueueEmpty
	// ErrClosed refines ErrInvalidParameter: the NIC is closed, or the object
	// destroyed.
	ErrClosed
	// ErrDevice refines ErrResource: the device is gone, has stopped, does not
	// answer, or breaks its protocol. Close the NIC and open it again.
	ErrDevice
	// ErrCanceled: the context was cancelled. VIA has no code for it. The error
	// also matches context.Canceled.
	ErrCanceled
	// ErrDisconnected: the peer has disconnected in order. All messages that it
	// had posted were delivered before.
	ErrDisconnected
	// ErrPeerLost: the peer no longer answers, or does not know the connection any
	// more. What became of the messages under way is unknown.
	ErrPeerLost
	// ErrConnectionBroken: an error in a descriptor or a completion queue at one
	// of the two ends broke the connection, or the peer has disconnected before
	// all that it had posted was delivered.
	ErrConnectionBroken
	// ErrWithdrawn: the client that asked to be connected no longer waits for an
	// answer: its time was up, or it gave up. VIA has no code for it.
	ErrWithdrawn
	// ErrProtocol: the other end of a Conn does not keep to its protocol.
	ErrProtocol
)

var codeTexts = map[Code]string{
	ErrNotDone:            "not done yet",
	ErrInvalidParameter:   "invalid parameter",
	ErrResource:           "out of resources, or object in use",
	ErrTimeout:            "timeout",
	ErrReject:             "rejected by the remote side",
	ErrInvalidReliability: "invalid reliability level",
	ErrInvalidMTU:         "invalid maximum transfer size",
	ErrInvalidQoS:         "invalid quality of service",
	ErrInvalidPtag:        "invalid protection tag",
	ErrInvalidRDMARead:    "RDMA read is not supported",
	ErrDescriptor:         "descriptor completed in error",
	ErrInvalidState:       "VI is in the wrong state",
	ErrNameService:        "name service error",
	ErrNoMatch:            "no one waits with this discriminator",
	ErrNotReachable:       "remote side not reachable",
	ErrNotSupported:       "not supported",
	ErrQueueFull:          "queue is full",
	ErrQueueEmpty:         "queue is empty",
	ErrClosed:             "closed",
	ErrDevice:             "device failure",
	ErrCanceled:           "cancelled",
	ErrDisconnected:       "the peer has disconnected",
	ErrPeerLost:           "the peer is lost: it no longer answers",
	ErrConnectionBroken:   "the connection broke by an error",
	ErrWithdrawn:          "the client no longer waits",
	ErrProtocol:           "the other side does not keep to the protocol of a Conn",
}

// Error says in words what the code means.
func (c Code) Error() string {
	if s, ok := codeTexts[c]; ok {
		return s
	}
	return fmt.Sprintf("VIA code %d", uint8(c))
}

// VIA returns the code that VIA itself has for c: c, or what c refines. It is
// zero if VIA has none.
func (c Code) VIA() Code {
	switch c {
	case ErrQueueFull, ErrDevice:
		return ErrResource
	case ErrQueueEmpty:
		return ErrDescriptor
	case ErrClosed:
		return ErrInvalidParameter
	case ErrCanceled, ErrDisconnected, ErrPeerLost, ErrConnectionBroken, ErrWithdrawn, ErrProtocol:
		return 0
	}
	return c
}

// Is lets a refined code match the one that it refines.
func (c Code) Is(target error) bool {
	t, ok := target.(Code)
	return ok && t != 0 && t == c.VIA()
}
