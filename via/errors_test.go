package via_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	should.Be(t, errors.Is(via.ErrResource, via.ErrQueueFull), false, "a general code matches a refined one")
	should.Be(t, errors.Is(via.ErrCanceled, via.Code(0)), false, "a code matches no code")
}

// TestErrorCodes checks that an error keeps its cause and gets the right code, however
// deep it is wrapped, and none if there is none.
func TestErrorCodes(t *testing.T) {
	for want, list := range map[via.Code][]error{
		via.ErrClosed: {descriptors.ErrClosed, vfio.ErrClosed},
		// A device that is given up because a deadline has passed is gone; one whose user has left is not.
		via.ErrDevice: {driver.ErrDeviceGone, driver.ErrDeviceFault, driver.ErrProtocol, driver.ErrUnsupportedDevice, driver.ErrBadRegisters,
			&driver.VersionError{}, driver.ErrNotReady, driver.ErrCommandTimeout, command(datasheet.ResultDMAFault), vfio.ErrBadConfig,
			load.ErrGone, load.ErrRegisters, load.ErrReadBack, load.ErrReport, &load.ProcessorError{},
			errors.Join(vfio.ErrDeviceGone, context.DeadlineExceeded)},
		via.ErrNotDone:    {descriptors.ErrNotDone},
		via.ErrQueueEmpty: {descriptors.ErrQueueEmpty},
		via.ErrQueueFull:  {descriptors.ErrQueueFull},
		via.ErrInvalidParameter: {driver.ErrNotRearmed, driver.ErrBadHandle, command(datasheet.ResultInvalidParameter), vfio.ErrBadAddress,
			vfio.ErrUnknownScheme, load.ErrImage, load.ErrABI, load.ErrDevice, load.ErrSRAM, load.ErrMap, load.ErrSize,
			load.ErrNoEntry, load.ErrPresent, load.ErrReadOnly},
		via.ErrNotSupported: {driver.ErrNotDMAMemory, command(datasheet.ResultNotSupported), command(datasheet.ResultBadOpcode), vfio.ErrNotSupported},
		via.ErrResource: {driver.ErrInUse, driver.ErrCQTooSmall, driver.ErrCQOverrun, command(datasheet.ResultResource), vfio.ErrNoDMAMemory,
			vfio.ErrNoIOVA, syscall.ENOMEM, load.ErrFull},
		via.ErrTimeout:            {command(datasheet.ResultTimeout), context.DeadlineExceeded, load.ErrNotReady},
		via.ErrReject:             {command(datasheet.ResultReject)},
		via.ErrInvalidReliability: {command(datasheet.ResultInvalidReliability)},
		via.ErrInvalidMTU:         {command(datasheet.ResultInvalidMTU)},
		via.ErrInvalidQoS:         {command(datasheet.ResultInvalidQoS)},
		via.ErrInvalidPtag:        {command(datasheet.ResultInvalidPtag)},
		via.ErrInvalidRDMARead:    {command(datasheet.ResultInvalidRDMARead)},
		via.ErrInvalidState:       {command(datasheet.ResultInvalidState), load.ErrNoPrevious, load.ErrNoProgram},
		via.ErrNoMatch:            {command(datasheet.ResultNoMatch)},
		via.ErrNotReachable:       {command(datasheet.ResultNotReachable)},
		via.ErrCanceled:           {command(datasheet.ResultAborted), context.Canceled, errors.Join(vfio.ErrDeviceGone, context.Canceled)},
		via.ErrDisconnected:       {descriptors.ErrDisconnected},
		via.ErrPeerLost:           {command(datasheet.ResultConnectionLost)},
		via.ErrConnectionBroken:   {command(datasheet.ResultDescriptor), command(datasheet.ResultRemoteDescriptor)},
		via.ErrWithdrawn:          {command(datasheet.ResultWithdrawn)},
		via.ErrDescriptor:         {&via.StatusError{Status: via.StatusFlushed, Ended: via.ErrPeerLost}},
		0:                         {syscall.EACCES, errors.New("something else")},
	} {
		for _, err := range list {
			for _, cause := range []error{err, fmt.Errorf("deep: %w", err), fmt.Errorf("deeper: %w", errors.Join(err, errors.New("more")))} {
				e := driver.NewError("do it", "emu:", cause)
				if e.Code != want || !errors.Is(e, err) || want != 0 && !errors.Is(e, want) || want == 0 && errors.Is(e, via.ErrResource) {
					t.Errorf("%v: code %v, want %v", cause, e.Code, want)
				}
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
		should.Be(t, c.err.Error(), c.want)
	}
}
