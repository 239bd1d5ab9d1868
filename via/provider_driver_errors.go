package via

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/vfio"
)

// answerOf turns the driver's answers into this package's.
func answerOf(err error) error {
	switch err {
	case driver.ErrNotDone:
		return ErrNotDone
	case driver.ErrQueueEmpty:
		return ErrQueueEmpty
	case driver.ErrQueueFull:
		return ErrQueueFull
	}
	var s *driver.StatusError
	if errors.As(err, &s) {
		return &StatusError{Status: s.Status, Ended: endOf(err), Err: err}
	}
	return err
}

// endOf is the code that says how a connection ended, if that is what err is about,
// and else zero.
func endOf(err error) Code {
	switch {
	case errors.Is(err, driver.ErrDisconnected):
		return ErrDisconnected
	case errors.Is(err, driver.ErrPeerLost):
		return ErrPeerLost
	case errors.Is(err, driver.ErrConnectionBroken):
		return ErrConnectionBroken
	}
	return 0
}

// endedError is the cause of an error that also matches how a connection ended.
type endedError struct {
	error
	end Code
}

func (e endedError) Unwrap() []error { return []error{e.error, e.end} }

// causes lists which code the driver's errors have. The first match counts.
var causes = []struct {
	cause error
	code  Code
}{
	{driver.ErrClosed, ErrClosed},
	{vfio.ErrClosed, ErrClosed},
	{context.Canceled, ErrCanceled},
	{load.ErrGone, ErrDevice},
	{load.ErrRegisters, ErrDevice},
	{load.ErrReadBack, ErrDevice},
	{load.ErrReport, ErrDevice},
	{load.ErrNotReady, ErrTimeout},
	{load.ErrNoPrevious, ErrInvalidState},
	{load.ErrNoProgram, ErrInvalidState},
	{load.ErrImage, ErrInvalidParameter},
	{load.ErrABI, ErrInvalidParameter},
	{load.ErrDevice, ErrInvalidParameter},
	{load.ErrSRAM, ErrInvalidParameter},
	{load.ErrMap, ErrInvalidParameter},
	{load.ErrSize, ErrInvalidParameter},
	{load.ErrNoEntry, ErrInvalidParameter},
	{load.ErrPresent, ErrInvalidParameter},
	{load.ErrReadOnly, ErrInvalidParameter},
	{driver.ErrNotDone, ErrNotDone},
	{driver.ErrQueueEmpty, ErrQueueEmpty},
	{driver.ErrQueueFull, ErrQueueFull},
	{driver.ErrDeviceGone, ErrDevice},
	{driver.ErrDeviceFault, ErrDevice},
	{driver.ErrProtocol, ErrDevice},
	{driver.ErrUnsupportedDevice, ErrDevice},
	{driver.ErrBadRegisters, ErrDevice},
	{driver.ErrVersion, ErrDevice},
	{driver.ErrNotReady, ErrDevice},
	{driver.ErrCommandTimeout, ErrDevice},
	{driver.ErrDMAFault, ErrDevice},
	{driver.ErrNotRearmed, ErrInvalidParameter},
	{driver.ErrBadHandle, ErrInvalidParameter},
	{driver.ErrPosted, ErrInvalidParameter},
	{driver.ErrOtherVI, ErrInvalidParameter},
	{driver.ErrNotDMAMemory, ErrNotSupported},
	{driver.ErrInUse, ErrResource},
	{driver.ErrCQTooSmall, ErrResource},
	{driver.ErrCQOverrun, ErrResource},
	{driver.ErrInvalidParameter, ErrInvalidParameter},
	{driver.ErrResource, ErrResource},
	{driver.ErrTimeout, ErrTimeout},
	{driver.ErrReject, ErrReject},
	{driver.ErrInvalidReliability, ErrInvalidReliability},
	{driver.ErrInvalidMTU, ErrInvalidMTU},
	{driver.ErrInvalidQoS, ErrInvalidQoS},
	{driver.ErrInvalidPtag, ErrInvalidPtag},
	{driver.ErrInvalidRDMARead, ErrInvalidRDMARead},
	{driver.ErrInvalidState, ErrInvalidState},
	{driver.ErrNoMatch, ErrNoMatch},
	{driver.ErrNotReachable, ErrNotReachable},
	{driver.ErrNotSupported, ErrNotSupported},
	{driver.ErrWithdrawn, ErrWithdrawn},
	{driver.ErrBadOpcode, ErrNotSupported},
	{driver.ErrAborted, ErrCanceled},
	{context.DeadlineExceeded, ErrTimeout},
	{vfio.ErrBadAddress, ErrInvalidParameter},
	{vfio.ErrUnknownScheme, ErrInvalidParameter},
	{vfio.ErrNotSupported, ErrNotSupported},
}

// explain finds the code of an error of the driver. The driver's own Error says
// again which operation failed on which device, so it is taken apart.
func explain(err error) (code Code, hint string, cause error) {
	code, cause = ErrResource, err
	var e *driver.Error
	if errors.As(err, &e) {
		cause, hint = e.Err, e.Hint
	}
	var own Code
	var status *StatusError
	var processor *load.ProcessorError
	switch {
	case errors.As(err, &own):
		return own, hint, nil
	case errors.As(err, &status):
		return ErrDescriptor, hint, status
	case errors.As(err, &processor):
		return ErrDevice, hint, cause
	}
	end := endOf(err)
	if end != 0 {
		code, cause = end, endedError{cause, end}
	}
	for _, c := range causes {
		if errors.Is(err, c.cause) {
			return c.code, hint, cause
		}
	}
	return code, hint, cause
}
