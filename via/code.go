package via

import "github.com/trapeze-nic/trapeze/descriptors"

// Code is a VIA return code as an error: the sentinels of this package. Test
// for one with errors.Is. Values 1 to 16 are VIA's own numbers (vipl.h; 15 and
// 16 are names from a later header, see SEMANTICS.md); from 32 on they are
// ours, and most refine a code of VIA's, which they also match.
type Code = descriptors.Code

// The codes: VIA's, and behind them our own, each with the VIA code that it refines.
// Those from ErrCanceled to ErrProtocol refine none: VIA has no code for them.
// ErrDisconnected, ErrPeerLost, ErrPathMTU and
// ErrConnectionBroken say how a connection ended that this side has not ended: the
// errors of descriptors that completed because of it match one of them besides
// ErrDescriptor, and so does AsyncError.Reason.
const (
	// ErrNotDone: nothing has completed yet.
	ErrNotDone = descriptors.ErrNotDone
	// ErrInvalidParameter: an argument makes no sense, or names an object of
	// another NIC or one that is gone.
	ErrInvalidParameter = descriptors.ErrInvalidParameter
	// ErrResource: there is no more of something, or the object is still in use.
	ErrResource = descriptors.ErrResource
	// ErrTimeout: the deadline passed. The error also matches
	// context.DeadlineExceeded.
	ErrTimeout = descriptors.ErrTimeout
	// ErrReject: the remote side turned the connection down.
	ErrReject = descriptors.ErrReject
	// ErrInvalidReliability: the level is not supported, or the two ends of a
	// connection differ.
	ErrInvalidReliability = descriptors.ErrInvalidReliability
	// ErrInvalidMTU: the maximum transfer size is too large, or the two ends of
	// a connection differ.
	ErrInvalidMTU = descriptors.ErrInvalidMTU
	// ErrInvalidQoS: the quality of service is not supported. No NIC that this
	// package drives has any to choose from, so nothing returns it yet.
	ErrInvalidQoS = descriptors.ErrInvalidQoS
	// ErrInvalidPtag: no such protection tag.
	ErrInvalidPtag = descriptors.ErrInvalidPtag
	// ErrInvalidRDMARead: RDMA read is not supported.
	ErrInvalidRDMARead = descriptors.ErrInvalidRDMARead
	// ErrDescriptor: a descriptor completed in error. It is returned together
	// with the error.
	ErrDescriptor = descriptors.ErrDescriptor
	// ErrInvalidState: the VI is in the wrong state for this.
	ErrInvalidState = descriptors.ErrInvalidState
	// ErrNameService: a name could not be resolved, or the file of names not be read.
	ErrNameService = descriptors.ErrNameService
	// ErrNoMatch: no one waits with this discriminator.
	ErrNoMatch = descriptors.ErrNoMatch
	// ErrNotReachable: the remote host cannot be reached.
	ErrNotReachable = descriptors.ErrNotReachable
	// ErrNotSupported: the NIC or the back end cannot do this.
	ErrNotSupported = descriptors.ErrNotSupported

	// ErrQueueFull refines ErrResource: as many descriptors are posted as the
	// queue holds.
	ErrQueueFull = descriptors.ErrQueueFull
	// ErrQueueEmpty refines ErrDescriptor: nothing is posted, so that there is
	// nothing to wait for. VIA says so with a descriptor error and no
	// descriptor.
	ErrQueueEmpty = descriptors.ErrQueueEmpty
	// ErrClosed refines ErrInvalidParameter: the NIC is closed, or the object
	// destroyed.
	ErrClosed = descriptors.ErrClosed
	// ErrDevice refines ErrResource: the device is gone, has stopped, does not
	// answer, or breaks its protocol. Close the NIC and open it again.
	ErrDevice = descriptors.ErrDevice
	// ErrCanceled: the context was cancelled. VIA has no code for it. The error
	// also matches context.Canceled.
	ErrCanceled = descriptors.ErrCanceled
	// ErrDisconnected: the peer has disconnected in order. All messages that it
	// had posted were delivered before.
	ErrDisconnected = descriptors.ErrDisconnected
	// ErrPeerLost: the peer no longer answers, or does not know the connection any
	// more. What became of the messages under way is unknown.
	ErrPeerLost = descriptors.ErrPeerLost
	// ErrConnectionBroken: an error in a descriptor or a completion queue at one
	// of the two ends broke the connection, or the peer has disconnected before
	// all that it had posted was delivered.
	ErrConnectionBroken = descriptors.ErrConnectionBroken
	// ErrWithdrawn: the client that asked to be connected no longer waits for an
	// answer: its time was up, or it gave up. VIA has no code for it.
	ErrWithdrawn = descriptors.ErrWithdrawn
	// ErrProtocol: the other end of a Conn does not keep to its protocol.
	ErrProtocol = descriptors.ErrProtocol
	// ErrPathMTU refines ErrNotReachable of an attempt to connect, and
	// ErrConnectionBroken of a connection: frames as large as the MTU of one end do not
	// arrive at the other, and small ones do. Set the option mtu= of both NICs to what
	// the path carries.
	ErrPathMTU = descriptors.ErrPathMTU
)
