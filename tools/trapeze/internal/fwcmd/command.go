// Package fwcmd holds the commands of trapeze that make, check, show and sign
// images of control programs, and those that put them into NICs.
package fwcmd

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
)

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// commands share what they need.
type commands struct{ *command.Env }

// Commands returns the command "load", and "fw" with its subcommands.
func Commands(e *command.Env) []*cobra.Command {
	x := &commands{e}
	var images strings.Builder
	for _, i := range firmware.ShippedImages() {
		fmt.Fprintf(&images, "  %-18s %s\n", i.Name, i.Summary)
	}
	t := cmdtable.New(help, map[string]string{
		"list": strings.TrimSuffix(images.String(), "\n"), "operations": operationHelp, "ring": firmware.DefaultKeyRing(),
		"name-length": fmt.Sprint(abi.MaxNameLength), "version-length": fmt.Sprint(abi.MaxVersionLength), "id-digits": fmt.Sprint(2 * abi.MaxBuildID),
	})
	return []*cobra.Command{t.Command(cmdtable.Does("load", x.load, loaded{})), t.Family("fw",
		cmdtable.Does("fw build", x.build, built{}),
		cmdtable.Does("fw check", x.check, checked{}),
		cmdtable.Does("fw show", x.show, shown{}),
		cmdtable.Does("fw sign", x.sign, signed{}),
		cmdtable.Does("fw verify", x.verify, signed{}),
		cmdtable.Does("fw disasm", x.disassemble, listing{}),
		cmdtable.Does("fw keygen", x.keygen, generated{}),
		cmdtable.Does("fw status", x.status, statusReport{}),
		cmdtable.Does("fw rollback", x.rollback, statusReport{}),
		cmdtable.Does("fw unload", x.unload, statusReport{}),
		cmdtable.Does("fw map", x.maps, mapReport{}),
	)}
}
