package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Sentinel errors, to be found with errors.Is inside an *Error.
var (
	// ErrClosed: the NIC, or the object that the method belongs to, is gone.
	ErrClosed = errors.New("closed")
	// ErrDeviceGone: the device reads as all ones, as removed hardware does.
	ErrDeviceGone = vfio.ErrDeviceGone
	// ErrDeviceFault: the device has stopped and says so in its health block.
	ErrDeviceFault = errors.New("the device reports a fatal fault")
	// ErrProtocol: the device wrote something that it must not write.
	ErrProtocol = errors.New("the device broke the protocol")
	// ErrUnsupportedDevice: not a device that this driver knows.
	ErrUnsupportedDevice = errors.New("not a Trapeze NIC")
	// ErrBadRegisters: the register blocks make no sense.
	ErrBadRegisters = errors.New("bad register blocks")
	// ErrVersion is matched by every *VersionError.
	ErrVersion = errors.New("unknown version")
	// ErrNotReady: the device did not come out of reset.
	ErrNotReady = errors.New("the device did not become ready")
	// ErrCommandTimeout: the device did not answer an admin command.
	ErrCommandTimeout = errors.New("the device did not answer a command")

	// ErrNotDone: nothing has completed yet.
	ErrNotDone = errors.New("not done yet")
	// ErrQueueEmpty: nothing is posted.
	ErrQueueEmpty = errors.New("queue is empty")
	// ErrQueueFull: as many descriptors are posted as the queue holds.
	ErrQueueFull = errors.New("queue is full")
	// ErrNotRearmed: the descriptor still carries the status of an earlier
	// completion.
	ErrNotRearmed = errors.New("descriptor was completed and not rearmed")
	// ErrPosted: the descriptor is on a queue already, and was not taken back.
	ErrPosted = errors.New("descriptor is posted already")
	// ErrOtherVI: the descriptor belongs to another VI.
	ErrOtherVI = errors.New("descriptor belongs to another VI")
	// ErrBadHandle: the descriptor does not lie in memory that is registered here
	// and that the device may write.
	ErrBadHandle = errors.New("descriptor is not in registered, writable memory of this NIC")
	// ErrNotDMAMemory: the memory did not come from AllocMemory of this NIC.
	ErrNotDMAMemory = errors.New("not DMA memory of this NIC")
	// ErrInUse: something else still needs the object.
	ErrInUse = errors.New("still in use")
	// ErrCQTooSmall: the queues attached to a CQ may complete more than it holds.
	ErrCQTooSmall = errors.New("completion queue is too small for its work queues")
	// ErrCQOverrun: the device lost completions because the CQ was full.
	ErrCQOverrun = errors.New("completion queue was overrun")

	// How a connection ended that this side has not ended. Errors of descriptors
	// that completed because of that match one of them, see StatusError, and so
	// does connecting a VI that is still in the error state.

	// ErrDisconnected: the peer has disconnected in order. All that it had posted
	// was delivered before.
	ErrDisconnected = errors.New("the peer has disconnected")
	// ErrPeerLost: the peer no longer answers, or does not know the connection any
	// more. What became of the messages under way is unknown.
	ErrPeerLost = errors.New("the peer is lost")
	// ErrConnectionBroken: an error at one of the two ends broke the connection,
	// or the peer has cut messages off.
	ErrConnectionBroken = errors.New("the connection broke")

	// The following are results of admin commands, see CommandError. Some are
	// also found by the driver itself.
	ErrInvalidParameter   = errors.New("invalid parameter")
	ErrResource           = errors.New("out of resources, or object in use")
	ErrTimeout            = errors.New("timeout")
	ErrReject             = errors.New("rejected by the remote side")
	ErrInvalidReliability = errors.New("invalid reliability level")
	ErrInvalidMTU         = errors.New("invalid maximum transfer size")
	ErrInvalidQoS         = errors.New("invalid quality of service")
	ErrInvalidPtag        = errors.New("invalid protection tag")
	ErrInvalidRDMARead    = errors.New("RDMA read is not supported")
	ErrInvalidState       = errors.New("invalid state")
	ErrNoMatch            = errors.New("no one waits with this discriminator")
	ErrNotReachable       = errors.New("remote side not reachable")
	ErrNotSupported       = errors.New("not supported by this device")
	ErrBadOpcode          = errors.New("the device does not know this command")
	ErrAborted            = errors.New("aborted")
	ErrDMAFault           = errors.New("the device could not reach memory")
	// ErrWithdrawn: the client's time was up, or it has given up.
	ErrWithdrawn = errors.New("the client no longer waits")
)

var resultErrors = map[descriptors.Result]error{
	descriptors.ResultInvalidParameter:   ErrInvalidParameter,
	descriptors.ResultResource:           ErrResource,
	descriptors.ResultTimeout:            ErrTimeout,
	descriptors.ResultReject:             ErrReject,
	descriptors.ResultInvalidReliability: ErrInvalidReliability,
	descriptors.ResultInvalidMTU:         ErrInvalidMTU,
	descriptors.ResultInvalidQoS:         ErrInvalidQoS,
	descriptors.ResultInvalidPtag:        ErrInvalidPtag,
	descriptors.ResultInvalidRDMARead:    ErrInvalidRDMARead,
	descriptors.ResultDescriptor:         ErrConnectionBroken,
	descriptors.ResultInvalidState:       ErrInvalidState,
	descriptors.ResultNoMatch:            ErrNoMatch,
	descriptors.ResultNotReachable:       ErrNotReachable,
	descriptors.ResultNotSupported:       ErrNotSupported,
	descriptors.ResultBadOpcode:          ErrBadOpcode,
	descriptors.ResultAborted:            ErrAborted,
	descriptors.ResultDMAFault:           ErrDMAFault,
	descriptors.ResultRemoteDescriptor:   ErrConnectionBroken,
	descriptors.ResultConnectionLost:     ErrPeerLost,
	descriptors.ResultWithdrawn:          ErrWithdrawn,
}

// Error is the error of this package: what was attempted on which device, why
// it failed, and what can be done about it.
type Error struct {
	Op     string // such as "create VI"
	Device string // address
	Err    error
	Hint   string // what to do; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device != "" {
		fmt.Fprintf(&b, " on %s", e.Device)
	}
	b.WriteString(": " + vfio.Inside(e.Op, e.Device, e.Err))
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// CommandError is an admin command that the device refused. It matches the
// sentinel of its result, and a timeout also context.DeadlineExceeded.
type CommandError struct {
	Opcode descriptors.Opcode
	Result descriptors.Result
	// Field is the byte offset in the command of the field that was refused,
	// zero if none was named.
	Field uint16
}

func (e *CommandError) Error() string {
	if e.Field != 0 {
		return fmt.Sprintf("%v: %v (field at offset %d of the command)", e.Opcode, e.Result, e.Field)
	}
	return fmt.Sprintf("%v: %v", e.Opcode, e.Result)
}

// Is reports whether target is the sentinel of the result.
func (e *CommandError) Is(target error) bool {
	if e.Result == descriptors.ResultTimeout && target == context.DeadlineExceeded {
		return true
	}
	s, ok := resultErrors[e.Result]
	return ok && s == target
}

// VersionError is a register block of a major version that this driver does
// not know. It matches ErrVersion.
type VersionError struct {
	Block  uint32 // type of the block
	Offset uint64 // in BAR0
	Found  uint32 // major<<16 | minor
	Wanted uint32 // major<<16 | minor
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: the %s block at %#x of BAR0 has version %d.%d, this driver knows %d.x", ErrVersion,
		blockName(e.Block), e.Offset, e.Found>>16, e.Found&0xffff, e.Wanted>>16)
}

// Is reports whether target is ErrVersion.
func (e *VersionError) Is(target error) bool { return target == ErrVersion }

// StatusError is a descriptor that completed in error. The descriptor is
// returned along with it.
type StatusError struct {
	Status descriptors.Status
	// Err is how the connection ended, see ConnectionEnd. It is nil if the
	// connection goes on, if there was none, and if this side has disconnected.
	Err error
}

func (e *StatusError) Error() string {
	s := "descriptor completed in error: " + e.Status.String()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *StatusError) Unwrap() error { return e.Err }
