package emulator

import (
	"errors"

	"github.com/trapeze-nic/trapeze/vfio"
)

// ErrOptions is wrapped by the errors about bad Options.
var ErrOptions = errors.New("bad options")

// Why the bus refuses an access. They are made once: an engine meets them while
// it moves data.
var (
	errNotMapped    = errors.New("nothing is mapped at this bus address")
	errPermission   = errors.New("mapping does not permit this access")
	errBusMasterOff = errors.New("bus mastering is off")
)

func (d *Device) fail(op string, err error) error {
	return &vfio.Error{Op: op, Device: d.name, Err: err}
}

func (d *Device) failHint(op string, err error, hint string) error {
	return &vfio.Error{Op: op, Device: d.name, Err: err, Hint: hint}
}
