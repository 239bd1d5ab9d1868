// Package cli has the commands of trapeze.
package cli

import (
	"github.com/spf13/cobra"

	// Make "emu:", "pci:" and "vfio-user:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/framescmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/memorycmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/mqniccmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"
	_ "github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// program gives the commands their methods.
type program struct{ *command.Env }

// Program is trapeze.
var Program = shell.Program{
	Name:  "trapeze",
	Short: "Messages through programmable NICs, without the kernel",
	Long: `trapeze shows, tests and uses NICs that are driven from user space.

A device is named by an address: emu: for an emulated NIC, with options after a
question mark, as in 'emu:?wire=udp://127.0.0.1:9000'; eth: for one whose wire is
an Ethernet NIC, as in eth:pci:0000:03:00.0. 'trapeze list' shows which addresses
this machine has.`,
	Example: `  trapeze demo
  trapeze recv --device 'emu:?wire=udp://127.0.0.1:9000' --output out.bin
  trapeze send --device 'emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000' FILE`,
	HelpExample: `  trapeze help fw build
  trapeze help exit-codes`,
	Commands:  commands,
	Moved:     map[string]string{"bench": "trapeze-lab", "model": "trapeze-lab", "plot": "trapeze-lab"},
	Values:    flagValues,
	Arguments: argumentValues,
	ExitCode:  exitCode,
	Remark:    remark,
	OwnReport: "trapeze doctor",
}

func commands(e *command.Env) []*cobra.Command {
	p := &program{e}
	list := []*cobra.Command{p.demo(), p.ping(), p.channel(), p.send(), p.recv(), p.info(), p.emulate(), p.conform()}
	list = append(list, hostcmd.Commands(e)...)
	list = append(list, telemetrycmd.Commands(e)...)
	return append(list, agent.Command(e), framescmd.Command(e), memorycmd.Command(e), fwcmd.LoadCommand(e), fwcmd.Command(e), mqniccmd.Command(e))
}
