package fwcmd

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/vfio"
)

// deviceFlags say which NIC, and how long it may take. A load takes milliseconds; the default is time
// for one over a slow bus.
type deviceFlags struct {
	Device  string        `flag:"device" required:"the address of a NIC, see 'trapeze list'" help:"address of the NIC, see 'trapeze list'"`
	Timeout time.Duration `flag:"timeout" default:"10s" range:"1ns.." help:"give up after this time"`
}

// addressed returns the scheme of the device's address.
func (x *commands) addressed(f *deviceFlags) (string, error) {
	a, err := vfio.ParseKnown(f.Device)
	if err != nil {
		return "", &command.DeviceError{Err: err}
	}
	return a.Scheme, nil
}

// loadOptions bound each wait for the processor.
func (f *deviceFlags) loadOptions() load.Options {
	return load.Options{Timeout: min(f.Timeout, load.DefaultTimeout)}
}

// with opens a NIC for use. look, if not nil, sees the device before that, and can
// refuse it before it is reset.
func (x *commands) with(ctx context.Context, f *deviceFlags, look func(vfio.Device) error, use func(context.Context, *driver.NIC) error) (err error) {
	if _, err := x.addressed(f); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	dev, err := vfio.Open(ctx, f.Device)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	if look != nil {
		if err := look(dev); err != nil {
			return errors.Join(err, dev.Close())
		}
	}
	// The NIC owns the device from here on, also if New fails.
	nic, err := driver.New(ctx, dev, driver.Options{Logger: command.Logger(ctx, command.Quiet)})
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	defer func() { err = errors.Join(err, nic.Close()) }()
	return use(ctx, nic)
}

// identity reads PCI vendor<<16 | device of a device that is not taken yet.
func identity(dev vfio.Device) (uint32, error) {
	config, err := vfio.ReadConfig(dev)
	if err != nil {
		return 0, err
	}
	return uint32(config.Vendor)<<16 | uint32(config.Device), nil
}

// statusReport is the JSON output of status, rollback and unload.
type statusReport struct {
	Device  string            `json:"device"`
	Backend string            `json:"backend"`
	Program telemetry.Program `json:"program"`
}

func (x *commands) status(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
		return nic.ProgramStatus()
	})
}

func (x *commands) rollback(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(ctx context.Context, nic *driver.NIC, o load.Options) (load.Status, error) {
		return nic.RollBackProgram(ctx, o)
	})
}

func (x *commands) unload(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
		return nic.UnloadProgram()
	})
}

// control does something with the program of a NIC, and shows its status then.
func (x *commands) control(ctx context.Context, f *deviceFlags, do func(context.Context, *driver.NIC, load.Options) (load.Status, error)) error {
	var r statusReport
	if err := x.with(ctx, f, nil, func(ctx context.Context, nic *driver.NIC) error {
		s, err := do(ctx, nic, f.loadOptions())
		r = statusReport{nic.Address(), nic.Backend(), s.Describe()}
		return err
	}); err != nil {
		return err
	}
	return x.Report(r)
}
