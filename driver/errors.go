package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/failure"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Errors that say more than a code of package descriptors. errors.Is finds them inside an
// *Error, and their code too. ErrNotDone, ErrQueueEmpty and ErrQueueFull are returned bare,
// all others inside an *Error.
var (
	// ErrDeviceGone: the device reads as all ones, as removed hardware does. Its
	// code is ErrDevice.
	ErrDeviceGone = vfio.ErrDeviceGone
	// ErrDeviceFault: the device has stopped and says so in its health block.
	ErrDeviceFault = descriptors.ErrDevice.Finer("the device reports a fatal fault")
	// ErrProtocol: the device wrote something that it must not write.
	ErrProtocol = descriptors.ErrDevice.Finer("the device broke the protocol")
	// ErrUnsupportedDevice: not a device that this driver knows.
	ErrUnsupportedDevice = descriptors.ErrDevice.Finer("not a Trapeze NIC")
	// ErrBadRegisters: the register blocks make no sense.
	ErrBadRegisters = descriptors.ErrDevice.Finer("bad register blocks")
	// ErrVersion is matched by every *VersionError.
	ErrVersion = descriptors.ErrDevice.Finer("unknown version")
	// ErrNotReady: the device did not come out of reset.
	ErrNotReady = descriptors.ErrDevice.Finer("the device did not become ready")
	// ErrCommandTimeout: the device did not answer an admin command.
	ErrCommandTimeout = descriptors.ErrDevice.Finer("the device did not answer a command")
	// ErrDMAFault: the device could not reach memory.
	ErrDMAFault = descriptors.ErrDevice.Finer("the device could not reach memory")
	// ErrBadOpcode: the device does not know an admin command.
	ErrBadOpcode = descriptors.ErrNotSupported.Finer("the device does not know this command")
	// ErrAborted: the admin command was aborted.
	ErrAborted = descriptors.ErrCanceled.Finer("aborted")

	// ErrNotRearmed: the descriptor still carries the status of an earlier
	// completion.
	ErrNotRearmed = descriptors.ErrInvalidParameter.Finer("descriptor was completed and not rearmed")
	// ErrPosted: the descriptor is on a queue already, and was not taken back.
	ErrPosted = descriptors.ErrInvalidParameter.Finer("descriptor is posted already")
	// ErrOtherVI: the descriptor belongs to another VI.
	ErrOtherVI = descriptors.ErrInvalidParameter.Finer("descriptor belongs to another VI")
	// ErrBadHandle: the descriptor does not lie in memory that is registered here
	// and that the device may write.
	ErrBadHandle = descriptors.ErrInvalidParameter.Finer("descriptor is not in registered, writable memory of this NIC")
	// ErrNotDMAMemory: no device can be given this memory, it is the Go heap's.
	ErrNotDMAMemory = dma.ErrGoHeap
	// ErrInUse: something else still needs the object.
	ErrInUse = descriptors.ErrResource.Finer("still in use")
	// ErrAddressInUse: another listener of the NIC has the name. Its code is ErrResource.
	ErrAddressInUse = descriptors.ErrResource.Finer("address in use")
	// ErrCQTooSmall: the queues attached to a CQ may complete more than it holds.
	ErrCQTooSmall = descriptors.ErrResource.Finer("completion queue is too small for its work queues")
	// ErrCQOverrun: the device lost completions because the CQ was full.
	ErrCQOverrun = descriptors.ErrResource.Finer("completion queue was overrun")
)

// resultErrors are the errors of results of admin commands, see CommandError.
var resultErrors = map[datasheet.Result]error{
	datasheet.ResultInvalidParameter:   descriptors.ErrInvalidParameter,
	datasheet.ResultResource:           descriptors.ErrResource,
	datasheet.ResultTimeout:            descriptors.ErrTimeout,
	datasheet.ResultReject:             descriptors.ErrReject,
	datasheet.ResultInvalidReliability: descriptors.ErrInvalidReliability,
	datasheet.ResultInvalidMTU:         descriptors.ErrInvalidMTU,
	datasheet.ResultInvalidQoS:         descriptors.ErrInvalidQoS,
	datasheet.ResultInvalidPtag:        descriptors.ErrInvalidPtag,
	datasheet.ResultInvalidRDMARead:    descriptors.ErrInvalidRDMARead,
	datasheet.ResultDescriptor:         descriptors.ErrConnectionBroken,
	datasheet.ResultInvalidState:       descriptors.ErrInvalidState,
	datasheet.ResultNoMatch:            descriptors.ErrNoMatch,
	datasheet.ResultNotReachable:       descriptors.ErrNotReachable,
	datasheet.ResultNotSupported:       descriptors.ErrNotSupported,
	datasheet.ResultBadOpcode:          ErrBadOpcode,
	datasheet.ResultAborted:            ErrAborted,
	datasheet.ResultDMAFault:           ErrDMAFault,
	datasheet.ResultRemoteDescriptor:   descriptors.ErrConnectionBroken,
	datasheet.ResultConnectionLost:     descriptors.ErrPeerLost,
	datasheet.ResultWithdrawn:          descriptors.ErrWithdrawn,
	datasheet.ResultPathMTU:            descriptors.ErrPathMTU,
}

// Error is the error of packages driver and via: what was attempted on which device,
// the return code, the cause, and what can be done about it. errors.Is finds both
// the code and whatever the cause matches.
//
// The calls of the data path, and those of via, ring and channel, return three codes bare,
// because they are answers and not failures. ErrNotDone: nothing is there yet. ErrQueueEmpty:
// nothing is posted, so that nothing can come. ErrQueueFull: there is no room yet.
type Error struct {
	Op     string           // such as "create VI"
	Device string           // address of the NIC
	Code   descriptors.Code // 0 if there is none for the cause, such as of a file that cannot be opened
	Err    error            // cause; nil if the code says all
	Hint   string           // what to do; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device != "" {
		fmt.Fprintf(&b, " on %s", e.Device)
	}
	if e.Err != nil {
		b.WriteString(": " + failure.Inside(e.Op, e.Device, e.Err))
	} else {
		fmt.Fprintf(&b, ": %v", e.Code)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Unwrap returns the code, if there is one, and the cause.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Code != 0 {
		all = append(all, e.Code)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// refusal is the Error of Refuse, for an operation that is going to fail with it.
func refusal(code descriptors.Code, hint, format string, args ...any) *Error {
	e := &Error{Code: code, Hint: hint}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

// NewError makes an Error of a cause, which is not nil, with the code and the hint
// that belong to it. Of a cause that is an Error already it changes Op and Device.
func NewError(op, device string, cause error) *Error {
	switch c := cause.(type) {
	case descriptors.Code:
		return &Error{Op: op, Device: device, Code: c}
	case *Error:
		return &Error{Op: op, Device: device, Code: c.Code, Err: c.Err, Hint: c.Hint}
	}
	e := &Error{Op: op, Device: device, Code: codeOf(cause), Err: cause}
	for _, h := range hints {
		if errors.Is(cause, h.err) {
			e.Hint = h.hint
			break
		}
	}
	return e
}

var hints = []struct {
	err  error
	hint string
}{
	{ErrDeviceGone, "it was removed, lost power, or memory decoding was switched off; close it and open it again"},
	{ErrDeviceFault, "close the device and open it again, which resets it"},
	{ErrProtocol, "close the device and open it again; if it happens again, the device is broken"},
	{ErrVersion, "use a driver and a device of the same major version"},
	{ErrCommandTimeout, "close the device and open it again, which resets it; an emulated device must be polled"},
	{ErrNotReady, "power-cycle the device"},
	{descriptors.ErrPathMTU, "set mtu= in the addresses of both devices to what the path carries"},
	{ErrAddressInUse, "another listener of this NIC has the name: close it, or take another name"},
	{ErrNotRearmed, "call Rearm or Prepare before posting it again"},
	{ErrPosted, "take it back with SendDone or RecvDone first"},
	{ErrOtherVI, "post it to the VI that it was made for"},
	{ErrBadHandle, "lay the descriptor over memory that this NIC has allocated and that is still registered"},
	{ErrNotDMAMemory, "use memory that the NIC has allocated, or from mmap or C, or copy into it"},
}

// codeOf is the code of an error: the first one that it wraps. Contexts and package
// vfio know no codes, so theirs are given here. It is zero for what has none.
func codeOf(err error) descriptors.Code {
	var c descriptors.Code
	switch {
	case errors.As(err, &c):
		return c
	case is(err, net.ErrClosed, vfio.ErrClosed):
		return descriptors.ErrClosed
	case is(err, context.Canceled):
		return descriptors.ErrCanceled
	case is(err, vfio.ErrDeviceGone, vfio.ErrBadConfig):
		return descriptors.ErrDevice
	case is(err, context.DeadlineExceeded):
		return descriptors.ErrTimeout
	case is(err, vfio.ErrBadAddress, vfio.ErrUnknownScheme):
		return descriptors.ErrInvalidParameter
	case is(err, vfio.ErrNotSupported):
		return descriptors.ErrNotSupported
	case is(err, vfio.ErrNoDMAMemory, vfio.ErrNoIOVA, syscall.ENOMEM, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE):
		return descriptors.ErrResource
	}
	return 0
}

func is(err error, any ...error) bool {
	return slices.ContainsFunc(any, func(target error) bool { return errors.Is(err, target) })
}

// CommandError is an admin command that the device refused. It wraps the error of
// its result, and a timeout also context.DeadlineExceeded.
type CommandError struct {
	Opcode datasheet.Opcode
	Result datasheet.Result
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

// Unwrap returns what the result means; nothing for one that this driver does not
// know.
func (e *CommandError) Unwrap() []error {
	err, ok := resultErrors[e.Result]
	switch {
	case !ok:
		return nil
	case e.Result == datasheet.ResultTimeout:
		return []error{err, context.DeadlineExceeded}
	}
	return []error{err}
}

// StatusError is a descriptor that completed in error. It matches ErrDescriptor.
// The descriptor is returned along with it.
type StatusError struct {
	Status datasheet.Status
	// Ended says how the connection ended: ErrDisconnected, ErrPeerLost, ErrPathMTU or
	// ErrConnectionBroken, which the error then matches too. It is zero if the
	// connection goes on, if there was none, and if this side has disconnected.
	Ended descriptors.Code
}

func (e *StatusError) Error() string {
	s := "descriptor completed in error: " + e.Status.String()
	if e.Ended != 0 {
		s += ": " + e.Ended.Error()
	}
	return s
}

// Unwrap returns ErrDescriptor, and how the connection ended.
func (e *StatusError) Unwrap() []error {
	if e.Ended == 0 {
		return []error{descriptors.ErrDescriptor}
	}
	return []error{descriptors.ErrDescriptor, e.Ended}
}

// unknownOutcome wraps the error of a command that the device may or may not
// have carried out.
type unknownOutcome struct{ err error }

func (u *unknownOutcome) Error() string { return u.err.Error() }
func (u *unknownOutcome) Unwrap() error { return u.err }

func outcomeUnknown(err error) bool {
	_, unknown := errors.AsType[*unknownOutcome](err)
	return unknown
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*CommandError](err)
	return refused
}

// ended reports whether err says that ctx has ended, and nothing of the device.
func ended(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrDeviceGone)
}

// hinted is err with a hint, for an operation that is going to fail with it.
func hinted(err error, hint string) error {
	e := NewError("", "", err)
	e.Hint = hint
	return e
}
