// Package framescmd holds the command frames: plain Ethernet frames on every port and
// wire that trapeze knows.
package framescmd

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/match"
)

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// commands share what they need.
type commands struct{ *command.Env }

// Command returns the command "frames" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	words := map[string]string{
		"match": match.Help, "images": strings.Join(firmware.ShippedNames(), ", "), "nics": "Trapeze NICs",
	}
	return cmdtable.New(help, words).Family("frames",
		cmdtable.Does("frames dump", x.runDump, dumpReport{}),
		cmdtable.Does("frames gen", x.runGen, genReport{}),
		cmdtable.Does("frames echo", x.runEcho, echoReport{}),
		cmdtable.Does("frames forward", x.runForward, relayReport{}),
	)
}
