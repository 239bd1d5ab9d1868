package driver_test

import (
	"context"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&driver.Error{Op: "open", Device: "emu:", Err: driver.ErrDeviceGone, Hint: "look"}, "open on emu:: device does not answer (look)"},
		{&driver.Error{Op: "open", Err: descriptors.ErrClosed}, "open: closed"},
		{&driver.CommandError{Opcode: datasheet.OpCreateCQ, Result: datasheet.ResultResource}, "CREATE_CQ: out of resources, or object in use"},
		{&driver.CommandError{Opcode: datasheet.OpCreateCQ, Result: datasheet.ResultInvalidParameter, Field: 26},
			"CREATE_CQ: invalid parameter (field at offset 26 of the command)"},
		{&driver.StatusError{Status: datasheet.StatusDone | datasheet.StatusFlushed}, "descriptor completed in error: done, flushed"},
		{&driver.FaultError{Code: datasheet.FaultAdminIndex, Detail: 7}, "the device reports a fatal fault: impossible admin ring index 0x7"},
		{&driver.FaultError{Code: 99, Detail: 1}, "the device reports a fatal fault: fault code 99, detail 0x1"},
		{&driver.VersionError{Block: datasheet.BlockClock, Offset: 0x300, Found: 0x20005, Wanted: 0x10000},
			"unknown version: the clock block at 0x300 of BAR0 has version 2.5, this driver knows 1.x"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestErrorMatching(t *testing.T) {
	timeout := &driver.Error{Op: "connect", Err: &driver.CommandError{Opcode: datasheet.OpConnectRequest, Result: datasheet.ResultTimeout}}
	for _, c := range []struct {
		err, target error
		want        bool
	}{
		{timeout, descriptors.ErrTimeout, true},
		{timeout, context.DeadlineExceeded, true},
		{timeout, context.Canceled, false},
		{timeout, descriptors.ErrReject, false},
		{&driver.CommandError{Result: datasheet.ResultReject}, descriptors.ErrReject, true},
		{&driver.CommandError{Result: datasheet.ResultReject}, context.DeadlineExceeded, false},
		{&driver.CommandError{Result: 500}, descriptors.ErrReject, false},
		{&driver.FaultError{}, driver.ErrDeviceFault, true},
		{&driver.FaultError{}, driver.ErrDeviceGone, false},
		{&driver.VersionError{}, driver.ErrVersion, true},
	} {
		if got := errors.Is(c.err, c.target); got != c.want {
			t.Errorf("%v is %v: %v", c.err, c.target, got)
		}
	}
}
