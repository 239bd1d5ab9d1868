package ethernet

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Sentinel errors, to be found with errors.Is inside an *Error.
var (
	// ErrClosed: used after Close.
	ErrClosed = vfio.ErrClosed
	// ErrDeviceGone: registers read as all ones, as those of removed hardware do.
	ErrDeviceGone = vfio.ErrDeviceGone
	// ErrNotSupported: the device or its driver cannot do that.
	ErrNotSupported = vfio.ErrNotSupported
	// ErrUnsupportedDevice: no driver is for this PCI function.
	ErrUnsupportedDevice = errors.New("no driver for this device")
	// ErrConfig is matched by every *ConfigError.
	ErrConfig = errors.New("bad configuration")
	// ErrBadFrame: a frame was not sent because it does not lie in its buffer, is too
	// short or too long, or asks for what was not switched on.
	ErrBadFrame = errors.New("bad frame")
	// ErrNotReady: the device, or a part of it, did not do within Options.Timeout what it
	// has to.
	ErrNotReady = errors.New("the device did not become ready")
	// ErrProtocol: the device says what cannot be.
	ErrProtocol = errors.New("the device contradicts its data sheet")
	// ErrNoBuffers: the pool has not enough free buffers.
	ErrNoBuffers = errors.New("no free buffers in the pool")
	// ErrInUse: something still uses the object.
	ErrInUse = vfio.ErrInUse
	// ErrNeedsReset: the device says that it is broken. Port.Restart resets it.
	ErrNeedsReset = errors.New("the device needs to be reset")
	// ErrNotStopped: the device could not be kept from memory. That memory stays mapped,
	// and its pool cannot be closed.
	ErrNotStopped = errors.New("the device could not be stopped")
)

// Error is the error of this package and of its drivers: what was attempted on which
// device, why it failed, and what can be done about it.
type Error = vfio.Error

// ConfigError says which field of Options or PoolOptions is wrong, and why.
type ConfigError struct {
	Field string // such as "Options.MTU"
	Value any
	Want  string // such as "68 to 9000"
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("%v: %s is %v, want %s", ErrConfig, e.Field, e.Value, e.Want)
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }
