// Package hostcmd holds the commands that concern this host's PCI functions:
// list, bind, unbind and doctor.
package hostcmd

import (
	_ "embed"
	"errors"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
	"github.com/trapeze-nic/trapeze/vfio"
)

// ours is the driver of our own NIC.
const ours = "trapeze"

// drivers are the ones of this program: for its own NIC, and for others as Ethernet ports.
var drivers = append([]hostpci.Driver{{Name: ours, Vendor: datasheet.PCIVendorID, Device: datasheet.PCIDeviceID}}, ethernet.HostDrivers()...)

// commands share what they need.
type commands struct {
	*command.Env
	// write replaces writing to sysfs in bind and unbind; nil but in tests.
	write func(name, value string) error
}

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// Commands makes the commands.
func Commands(e *command.Env) []*cobra.Command { return newCommands(e, nil) }

func newCommands(e *command.Env, write func(name, value string) error) []*cobra.Command {
	x := &commands{e, write}
	return cmdtable.New(help, map[string]string{
		"driver": hostpci.DefaultDriver, "timeout": hostpci.DefaultTimeout.String(),
	}).Commands(
		cmdtable.Does("list", x.list, listReport{}),
		cmdtable.Does("bind", x.bind, bindReport{}),
		cmdtable.Does("unbind", x.unbind, bindReport{}),
		cmdtable.Does("doctor", x.doctor, doctor.Report{}),
	)
}

// rootFlag puts a recorded host in the place of this one.
type rootFlag struct {
	Root hostpci.Root `flag:"root" default:"/" hidden:"true" help:"folder with the sys, proc and dev to look at"`
}

// marked marks errors of addresses.
func marked(err error) error {
	if errors.Is(err, vfio.ErrBadAddress) || errors.Is(err, hostpci.ErrNoFunction) {
		return &command.DeviceError{Err: err}
	}
	return err
}

// Complete lists the addresses of the functions that a command is for: unbind takes
// what VFIO has, bind what it does not have, others both.
func Complete(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	root := "/"
	if f := c.Flag("root"); f != nil {
		root = f.Value.String()
	}
	// What can be read is offered.
	functions, _ := hostpci.AllFunctions(hostpci.Root(root))
	hostpci.Fit(functions, drivers)
	var list []cobra.Completion
	for _, f := range functions {
		bound := hostpci.IsVFIO(f.Driver)
		switch {
		case c.Name() == "unbind" && !bound, c.Name() == "bind" && bound:
		case f.Class>>16 == hostpci.ClassNetwork, f.Fits != "", bound:
			list = append(list, cobra.CompletionWithDesc(f.Address, f.Driver))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
