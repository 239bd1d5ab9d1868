package via_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

func TestCodes(t *testing.T) {
	seen := map[string]via.Code{}
	for c := via.ErrNotDone; c <= via.ErrProtocol; c++ {
		if c > via.ErrNotSupported && c < via.ErrQueueFull {
			continue // no codes between VIA's and ours
		}
		if other, twice := seen[c.Error()]; twice {
			t.Errorf("codes %d and %d say the same: %v", other, c, c)
		}
		seen[c.Error()] = c
		if v := c.VIA(); c <= via.ErrNotSupported && v != c || v > via.ErrNotSupported {
			t.Errorf("%v refines %v", c, v)
		}
		if v := c.VIA(); v != 0 && !errors.Is(c, v) {
			t.Errorf("%v does not match %v", c, v)
		}
		if c != via.ErrNotDone && errors.Is(c, via.ErrNotDone) {
			t.Errorf("%v matches %v", c, via.ErrNotDone)
		}
	}
	if errors.Is(via.ErrResource, via.ErrQueueFull) {
		t.Error("a general code matches a refined one")
	}
	if errors.Is(via.ErrCanceled, via.Code(0)) {
		t.Error("a code matches no code")
	}
}

// TestOneVocabulary: what the data path answers is the same value in both packages.
func TestOneVocabulary(t *testing.T) {
	for via, driver := range map[error]error{
		via.ErrNotDone: descriptors.ErrNotDone, via.ErrQueueEmpty: descriptors.ErrQueueEmpty, via.ErrQueueFull: descriptors.ErrQueueFull,
		via.ErrClosed: descriptors.ErrClosed, via.ErrPeerLost: descriptors.ErrPeerLost, via.ErrTimeout: descriptors.ErrTimeout,
	} {
		if via != driver {
			t.Errorf("%v is %T, %v is %T", via, via, driver, driver)
		}
	}
}

// TestErrorCodes checks that an error keeps its cause and gets the right code, however
// deep it is wrapped, and none if there is none.
func TestErrorCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want via.Code
	}{
		{descriptors.ErrClosed, via.ErrClosed},
		{driver.ErrDeviceGone, via.ErrDevice},
		{driver.ErrDeviceFault, via.ErrDevice},
		{driver.ErrProtocol, via.ErrDevice},
		{driver.ErrUnsupportedDevice, via.ErrDevice},
		{driver.ErrBadRegisters, via.ErrDevice},
		{&driver.VersionError{}, via.ErrDevice},
		{driver.ErrNotReady, via.ErrDevice},
		{driver.ErrCommandTimeout, via.ErrDevice},
		{descriptors.ErrNotDone, via.ErrNotDone},
		{descriptors.ErrQueueEmpty, via.ErrQueueEmpty},
		{descriptors.ErrQueueFull, via.ErrQueueFull},
		{driver.ErrNotRearmed, via.ErrInvalidParameter},
		{driver.ErrBadHandle, via.ErrInvalidParameter},
		{driver.ErrNotDMAMemory, via.ErrNotSupported},
		{driver.ErrInUse, via.ErrResource},
		{driver.ErrCQTooSmall, via.ErrResource},
		{driver.ErrCQOverrun, via.ErrResource},
		{command(datasheet.ResultInvalidParameter), via.ErrInvalidParameter},
		{command(datasheet.ResultResource), via.ErrResource},
		{command(datasheet.ResultTimeout), via.ErrTimeout},
		{command(datasheet.ResultReject), via.ErrReject},
		{command(datasheet.ResultInvalidReliability), via.ErrInvalidReliability},
		{command(datasheet.ResultInvalidMTU), via.ErrInvalidMTU},
		{command(datasheet.ResultInvalidQoS), via.ErrInvalidQoS},
		{command(datasheet.ResultInvalidPtag), via.ErrInvalidPtag},
		{command(datasheet.ResultInvalidRDMARead), via.ErrInvalidRDMARead},
		{command(datasheet.ResultInvalidState), via.ErrInvalidState},
		{command(datasheet.ResultNoMatch), via.ErrNoMatch},
		{command(datasheet.ResultNotReachable), via.ErrNotReachable},
		{command(datasheet.ResultNotSupported), via.ErrNotSupported},
		{command(datasheet.ResultBadOpcode), via.ErrNotSupported},
		{command(datasheet.ResultAborted), via.ErrCanceled},
		{command(datasheet.ResultDMAFault), via.ErrDevice},
		{descriptors.ErrDisconnected, via.ErrDisconnected},
		{command(datasheet.ResultConnectionLost), via.ErrPeerLost},
		{command(datasheet.ResultDescriptor), via.ErrConnectionBroken},
		{command(datasheet.ResultRemoteDescriptor), via.ErrConnectionBroken},
		{command(datasheet.ResultWithdrawn), via.ErrWithdrawn},
		{context.Canceled, via.ErrCanceled},
		{context.DeadlineExceeded, via.ErrTimeout},
		{vfio.ErrBadAddress, via.ErrInvalidParameter},
		{vfio.ErrUnknownScheme, via.ErrInvalidParameter},
		{vfio.ErrNotSupported, via.ErrNotSupported},
		{vfio.ErrClosed, via.ErrClosed},
		{vfio.ErrBadConfig, via.ErrDevice},
		{vfio.ErrNoDMAMemory, via.ErrResource},
		{vfio.ErrNoIOVA, via.ErrResource},
		{syscall.ENOMEM, via.ErrResource},
		{load.ErrGone, via.ErrDevice},
		{load.ErrRegisters, via.ErrDevice},
		{load.ErrReadBack, via.ErrDevice},
		{load.ErrReport, via.ErrDevice},
		{&load.ProcessorError{}, via.ErrDevice},
		{load.ErrNotReady, via.ErrTimeout},
		{load.ErrNoPrevious, via.ErrInvalidState},
		{load.ErrNoProgram, via.ErrInvalidState},
		{load.ErrImage, via.ErrInvalidParameter},
		{load.ErrABI, via.ErrInvalidParameter},
		{load.ErrDevice, via.ErrInvalidParameter},
		{load.ErrSRAM, via.ErrInvalidParameter},
		{load.ErrMap, via.ErrInvalidParameter},
		{load.ErrSize, via.ErrInvalidParameter},
		{load.ErrNoEntry, via.ErrInvalidParameter},
		{load.ErrPresent, via.ErrInvalidParameter},
		{load.ErrReadOnly, via.ErrInvalidParameter},
		{load.ErrFull, via.ErrResource},
		{&via.StatusError{Status: via.StatusFlushed, Ended: via.ErrPeerLost}, via.ErrDescriptor},
		// A device that is given up because a deadline has passed is gone; one whose
		// user has left is not.
		{errors.Join(vfio.ErrDeviceGone, context.DeadlineExceeded), via.ErrDevice},
		{errors.Join(vfio.ErrDeviceGone, context.Canceled), via.ErrCanceled},
		{syscall.EACCES, 0},
		{errors.New("something else"), 0},
	} {
		for _, cause := range []error{c.err, fmt.Errorf("deep: %w", c.err), fmt.Errorf("deeper: %w", errors.Join(c.err, errors.New("more")))} {
			e := driver.NewError("do it", "emu:", cause)
			if e.Code != c.want || !errors.Is(e, c.err) || c.want != 0 && !errors.Is(e, c.want) || c.want == 0 && errors.Is(e, via.ErrResource) {
				t.Errorf("%v: code %v, want %v", cause, e.Code, c.want)
			}
		}
	}
	inner := &via.Error{Op: "do that", Device: "emu:", Code: via.ErrReject, Err: io.EOF, Hint: "do it differently"}
	if e := driver.NewError("do it", "fake:", inner); e.Op != "do it" || e.Device != "fake:" || e.Code != inner.Code || e.Err != inner.Err || e.Hint != inner.Hint {
		t.Errorf("%+v", e)
	}
}

func command(r datasheet.Result) error {
	return &driver.CommandError{Opcode: datasheet.OpCreateEndpoint, Result: r}
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&via.Error{Op: "close", Code: via.ErrClosed}, "close: closed"},
		{&via.Error{Op: "open", Device: "emu:", Code: via.ErrDevice, Err: errors.New("smoke"), Hint: "open a window"},
			"open on emu:: smoke (open a window)"},
		{&via.StatusError{Status: via.StatusLengthError | datasheet.StatusDone}, "descriptor completed in error: done, local length error"},
		{via.Code(99), "VIA code 99"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
