// Package cli has the commands of trapeze.
package cli

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	// Make "emu:", "pci:" and "vfio-user:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/framescmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/memorycmd"
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
	Commands:  commands,
	Values:    flagValues,
	Arguments: argumentValues,
	ExitCode:  exitCode,
	Remark:    remark,
	OwnReport: "trapeze doctor",
}

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

func commands(e *command.Env) []*cobra.Command {
	p := &program{e}
	t := cmdtable.New(help, map[string]string{
		"channels": cmdtable.Keys(channelsReport{}), "policies": cmdtable.Keys(policiesReport{}), "serve": cmdtable.Keys(serveReport{}),
		"sections": strings.Join(sections, ", "), "policy-names": strings.Join(driver.HostPolicies(), ", "),
		"nics": "both NICs", "images": strings.Join(firmware.ShippedNames(), ", "),
	})
	return slices.Concat(t.Commands(
		cmdtable.Does("demo", p.demo, demoReport{}),
		cmdtable.Does("ping", p.ping, pingReport{}),
		cmdtable.Does("send", p.send, sendReport{}),
		cmdtable.Does("recv", p.recv, recvReport{}),
		cmdtable.Does("info", p.info, infoReport{}),
		cmdtable.Does("emulate", p.emulate, emulateReport{}),
		cmdtable.Does("conform", p.conform, conformReport{}),
	), []*cobra.Command{t.Family("channel",
		cmdtable.Does("channel ping", p.channelPing, channelReport{}),
		cmdtable.Does("channel listen", p.channelListen, listenReport{}),
	)}, hostcmd.Commands(e), telemetrycmd.Commands(e), fwcmd.Commands(e),
		[]*cobra.Command{agent.Command(e), framescmd.Command(e), memorycmd.Command(e)})
}
