// Package hostcmd holds the commands that concern this host's PCI functions:
// list, bind, unbind and doctor.
package hostcmd

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/hostpci"
)

// Env is what the commands need from the program that they are part of.
type Env struct {
	// Stdout is for results, Stderr for remarks to a person who watches.
	Stdout, Stderr io.Writer
	// JSON says whether to print one JSON object on stdout and nothing else.
	JSON func() bool
	// Emphasis switches bold on and off; nil for never.
	Emphasis func() (on, off string)
	// Run makes the RunE of a command; nil for one that does nothing else.
	Run func(func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error
	// DeviceError and UsageError mark errors of a device's address and of the
	// command line; nil for no mark.
	DeviceError, UsageError func(error) error
}

// drivers are the ones of this program.
var drivers = []hostpci.Driver{{Name: "trapeze", Vendor: descriptors.PCIVendorID, Device: descriptors.PCIDeviceID}}

// commands share what they need.
type commands struct {
	Env
	// write is what bind and unbind use for sysfs; nil but in tests.
	write func(name, value string) error
}

// Commands makes the commands.
func Commands(e Env) []*cobra.Command { return newCommands(e, nil) }

func newCommands(e Env, write func(name, value string) error) []*cobra.Command {
	if e.JSON == nil {
		e.JSON = func() bool { return false }
	}
	if e.Emphasis == nil {
		e.Emphasis = func() (string, string) { return "", "" }
	}
	if e.Run == nil {
		e.Run = func(f func(context.Context, []string) error) func(*cobra.Command, []string) error {
			return func(c *cobra.Command, args []string) error { return f(c.Context(), args) }
		}
	}
	for _, mark := range []*func(error) error{&e.DeviceError, &e.UsageError} {
		if *mark == nil {
			*mark = func(err error) error { return err }
		}
	}
	x := &commands{e, write}
	return []*cobra.Command{x.list(), x.bind(), x.unbind(), x.doctor()}
}

// rootFlag adds the flag that puts a recorded host in the place of this one.
func rootFlag(c *cobra.Command, root *string) {
	c.Flags().StringVar(root, "root", "/", "folder with the sys, proc and dev to look at")
	c.Flags().Lookup("root").Hidden = true
}

// marked marks errors of addresses.
func (x *commands) marked(err error) error {
	if errors.Is(err, vfio.ErrBadAddress) || errors.Is(err, hostpci.ErrNoFunction) {
		return x.DeviceError(err)
	}
	return err
}
