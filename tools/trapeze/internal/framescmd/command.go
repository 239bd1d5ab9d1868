// Package framescmd holds the command frames: plain Ethernet frames on every port and
// wire that trapeze knows.
package framescmd

import (
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// Command returns the command "frames" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	c := &cobra.Command{
		Use:   "frames",
		Short: "Plain Ethernet frames: show, generate, answer and pass them on",
		Long: `Plain Ethernet frames, without the kernel.
` + devicesHelp + `

JSON keys: those of 'trapeze help --json'.`,
		Example: `  trapeze frames echo --device pci:0000:03:00.0 --ip 10.0.0.2
  trapeze frames dump --device 'emu:?wire=memif:/run/memif.sock&role=client' --filter arp
  trapeze frames gen --device vhost-user:/run/vhost0.sock --rate 100k --duration 10s`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.dump(), x.gen(), x.echo(), x.forward(), x.bridge())
	return c
}

// commands share what they need.
type commands struct{ *command.Env }

// devicesHelp belongs into the description of every command that opens ports.
const devicesHelp = `
A device is a NIC that is a port of Ethernet frames: pci:0000:03:00.0 bound to vfio-pci,
vhost-user:PATH, or afxdp:eth0 while the kernel keeps it; or a Trapeze NIC, emu: with any
wire or vfio-user:, by an endpoint for raw frames.`

// runHelp belongs into the description of every command that runs until it is stopped.
const runHelp = `
The command runs until --duration or --count is over, or it is interrupted; it prints
the totals then, and ends with code 0. --progress shows the rates each second.`
