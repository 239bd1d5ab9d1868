package via_test

import (
	"errors"
	"io"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// closing is an emulated NIC that counts how often it is closed. err is what Close returns besides.
type closing struct {
	*emulator.Device
	closed int
	err    error
}

func newClosing(t *testing.T) *closing {
	t.Helper()
	x, y := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	t.Cleanup(func() { _ = y.Close() })
	return &closing{Device: x}
}

func (c *closing) Close() error {
	c.closed++
	return errors.Join(c.Device.Close(), c.err)
}

// TestCloseFails: the error of a device that does not close is no lack of resources, and the device is closed once.
func TestCloseFails(t *testing.T) {
	d := newClosing(t)
	nic := openDevice(t, d, via.Options{})
	d.err = io.ErrUnexpectedEOF
	var e *via.Error
	if err := nic.Close(); !errors.Is(err, d.err) || !errors.As(err, &e) || e.Code != 0 || errors.Is(err, via.ErrResource) {
		t.Errorf("close: %v", err)
	}
	should.OK(t, nic.Close())
	should.Be(t, d.closed, 1, "the device was closed times")
}
