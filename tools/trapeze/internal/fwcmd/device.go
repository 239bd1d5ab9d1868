package fwcmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/vfio"
)

// defaultTimeout of commands that use a NIC. A load takes milliseconds; it is time
// for one over a slow bus.
const defaultTimeout = 10 * time.Second

// resetHelp belongs into the description of every command that opens a NIC.
const resetHelp = `Opening a NIC resets it, as a process takes it for itself. The program that it runs
survives that, with what its maps hold; loading it again makes them new.`

// deviceFlags say which NIC, and how long it may take.
type deviceFlags struct {
	device  string
	timeout time.Duration
}

func (f *deviceFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.device, "device", "", "address of the NIC, see 'trapeze list'")
	c.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "give up after this time")
}

// addressed returns the scheme of the device's address.
func (x *commands) addressed(f *deviceFlags) (string, error) {
	if f.device == "" {
		return "", &option.Error{Option: "--device", Value: "", Allowed: "the address of a NIC, see 'trapeze list'"}
	}
	if f.timeout <= 0 {
		return "", &option.Error{Option: "--timeout", Value: f.timeout.String(), Allowed: "more than 0, as in 5s"}
	}
	a, err := vfio.ParseAddress(f.device)
	if err != nil {
		return "", &command.DeviceError{Err: err}
	}
	return a.Scheme, nil
}

// loadOptions bound each wait for the processor.
func (f *deviceFlags) loadOptions() load.Options {
	return load.Options{Timeout: min(f.timeout, load.DefaultTimeout)}
}

// with opens a NIC for use. look, if not nil, sees the device before that, and can
// refuse it before it is reset.
func (x *commands) with(ctx context.Context, f *deviceFlags, look func(vfio.Device) error, use func(context.Context, *driver.NIC) error) (err error) {
	if _, err := x.addressed(f); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	dev, err := vfio.Open(ctx, f.device)
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

// identity reads PCI vendor<<16 | device of a device that nobody has taken yet.
func identity(dev vfio.Device) (uint32, error) {
	config, err := vfio.ReadConfig(dev)
	if err != nil {
		return 0, err
	}
	return uint32(config.Vendor)<<16 | uint32(config.Device), nil
}
