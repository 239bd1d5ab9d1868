package vfio

import (
	"errors"
	"net"

	"github.com/trapeze-nic/trapeze/internal/failure"
)

// Sentinel errors, to be found with errors.Is inside an *Error.
var (
	// ErrClosed: used after Close, or closed while waiting. It is net.ErrClosed too.
	ErrClosed        error = closedError{}
	ErrOutOfRange          = errors.New("outside the region")
	ErrNotMappable         = errors.New("region cannot be mapped")
	ErrMisaligned          = errors.New("misaligned")
	ErrNoSuchRegion        = errors.New("no such region")
	ErrNoSuchIRQ           = errors.New("no such interrupt")
	ErrIOVAInUse           = errors.New("IOVA range is in use")
	ErrIOVARange           = errors.New("IOVA outside the usable ranges")
	ErrNotMapped           = errors.New("no such mapping")
	ErrNoIOVA              = errors.New("no free IOVA range is large enough")
	ErrBadAddress          = failure.ErrBadAddress
	ErrUnknownScheme       = errors.New("unknown kind of device address")
	ErrNotSupported        = errors.New("not supported by this back end")
	ErrNoDMAMemory         = errors.New("no memory for DMA")
	ErrBadSize             = errors.New("size is zero")
	ErrGoHeap              = errors.New("memory of the Go heap")
	// ErrInUse: something still uses the object.
	ErrInUse = errors.New("still in use")
	// ErrBadConfig: PCI configuration space contradicts the specification.
	ErrBadConfig = errors.New("bad PCI configuration space")
	// ErrDeviceGone: reads give all ones, as from a device that was removed or
	// is asleep.
	ErrDeviceGone = errors.New("device does not answer")
)

// closedError has a text of its own, as net.ErrClosed speaks of network connections.
type closedError struct{}

func (closedError) Error() string { return "closed" }

// Is reports whether target is net.ErrClosed.
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Error is the error of this package: what was attempted on which device, why
// it failed, and what can be done about it.
type Error = failure.Error
