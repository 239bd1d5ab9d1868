package via_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
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

// TestExplain checks that an error of the driver keeps its cause and gets the
// right code, however deep it is wrapped.
func TestExplain(t *testing.T) {
	p := via.Driver(new(driver.NIC))
	for _, c := range []struct {
		err  error
		want via.Code
	}{
		{driver.ErrClosed, via.ErrClosed},
		{driver.ErrDeviceGone, via.ErrDevice},
		{driver.ErrDeviceFault, via.ErrDevice},
		{driver.ErrProtocol, via.ErrDevice},
		{driver.ErrUnsupportedDevice, via.ErrDevice},
		{driver.ErrBadRegisters, via.ErrDevice},
		{&driver.VersionError{}, via.ErrDevice},
		{driver.ErrNotReady, via.ErrDevice},
		{driver.ErrCommandTimeout, via.ErrDevice},
		{driver.ErrNotDone, via.ErrNotDone},
		{driver.ErrQueueEmpty, via.ErrQueueEmpty},
		{driver.ErrQueueFull, via.ErrQueueFull},
		{driver.ErrNotRearmed, via.ErrInvalidParameter},
		{driver.ErrBadHandle, via.ErrInvalidParameter},
		{driver.ErrNotDMAMemory, via.ErrNotSupported},
		{driver.ErrInUse, via.ErrResource},
		{driver.ErrCQTooSmall, via.ErrResource},
		{driver.ErrCQOverrun, via.ErrResource},
		{command(descriptors.ResultInvalidParameter), via.ErrInvalidParameter},
		{command(descriptors.ResultResource), via.ErrResource},
		{command(descriptors.ResultTimeout), via.ErrTimeout},
		{command(descriptors.ResultReject), via.ErrReject},
		{command(descriptors.ResultInvalidReliability), via.ErrInvalidReliability},
		{command(descriptors.ResultInvalidMTU), via.ErrInvalidMTU},
		{command(descriptors.ResultInvalidQoS), via.ErrInvalidQoS},
		{command(descriptors.ResultInvalidPtag), via.ErrInvalidPtag},
		{command(descriptors.ResultInvalidRDMARead), via.ErrInvalidRDMARead},
		{command(descriptors.ResultInvalidState), via.ErrInvalidState},
		{command(descriptors.ResultNoMatch), via.ErrNoMatch},
		{command(descriptors.ResultNotReachable), via.ErrNotReachable},
		{command(descriptors.ResultNotSupported), via.ErrNotSupported},
		{command(descriptors.ResultBadOpcode), via.ErrNotSupported},
		{command(descriptors.ResultAborted), via.ErrCanceled},
		{command(descriptors.ResultDMAFault), via.ErrDevice},
		{driver.ErrDisconnected, via.ErrDisconnected},
		{command(descriptors.ResultConnectionLost), via.ErrPeerLost},
		{command(descriptors.ResultDescriptor), via.ErrConnectionBroken},
		{command(descriptors.ResultRemoteDescriptor), via.ErrConnectionBroken},
		{command(descriptors.ResultWithdrawn), via.ErrWithdrawn},
		{context.Canceled, via.ErrCanceled},
		{context.DeadlineExceeded, via.ErrTimeout},
		{vfio.ErrBadAddress, via.ErrInvalidParameter},
		{vfio.ErrUnknownScheme, via.ErrInvalidParameter},
		{vfio.ErrNotSupported, via.ErrNotSupported},
		{errors.New("something else"), via.ErrResource},
	} {
		deep := &driver.Error{Op: "do it", Device: "emu:", Hint: "do it differently", Err: fmt.Errorf("deep: %w", c.err)}
		code, hint, cause := p.Explain(deep)
		if code != c.want || hint != deep.Hint || !errors.Is(cause, c.err) {
			t.Errorf("%v: code %v, cause %v, hint %q", c.err, code, cause, hint)
		}
		if code, _, _ := p.Explain(c.err); code != c.want {
			t.Errorf("%v: code %v, want %v", c.err, code, c.want)
		}
	}
}

func command(r descriptors.Result) error {
	return &driver.CommandError{Opcode: descriptors.OpCreateEndpoint, Result: r}
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&via.Error{Op: "close", Code: via.ErrClosed}, "close: closed"},
		{&via.Error{Op: "open", Device: "emu:", Code: via.ErrDevice, Err: errors.New("smoke"), Hint: "open a window"},
			"open on emu:: smoke (open a window)"},
		{&via.StatusError{Status: via.StatusLengthError | descriptors.StatusDone}, "descriptor completed in error: done, local length error"},
		{via.Code(99), "VIA code 99"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
