package emulator

import (
	"errors"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
)

// ErrOptions is wrapped by the errors about bad Options.
var ErrOptions = errors.New("bad options")

// ErrMemory: the device may not have more memory mapped.
var ErrMemory = errors.New("too much memory")

// These are the reasons why the bus refuses an access. They are made once, since the
// engine gets them on the data path.
var (
	errNotMapped    = errors.New("nothing is mapped at this bus address")
	errPermission   = errors.New("mapping does not permit this access")
	errBusMasterOff = errors.New("bus mastering is off")
)

func (d *Device) fail(op string, err error) error {
	return &vfio.Error{Op: op, Device: d.name, Err: err}
}

// locked runs f on a device that is open, with mu held.
func (d *Device) locked(op string, f func() error) error { return d.with(&d.mu, op, f) }

// mapping runs f on a device that is open, with maps held.
func (d *Device) mapping(op string, f func() error) error { return d.with(&d.maps, op, f) }

func (d *Device) with(mu *sync.Mutex, op string, f func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if d.closed.Load() {
		return d.fail(op, vfio.ErrClosed)
	}
	err := f()
	if _, ok := err.(*vfio.Error); err == nil || ok {
		return err
	}
	return d.fail(op, err)
}

func (d *Device) failHint(op string, err error, hint string) error {
	return &vfio.Error{Op: op, Device: d.name, Err: err, Hint: hint}
}
