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
	"github.com/trapeze-nic/trapeze/internal/command"
)

// help has the help of the commands, see command.NewTable.
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
	t := command.NewTable(help, map[string]string{
		"list": strings.TrimSuffix(images.String(), "\n"), "operations": operationHelp, "ring": firmware.DefaultKeyRing(),
		"name-length": fmt.Sprint(abi.MaxNameLength), "version-length": fmt.Sprint(abi.MaxVersionLength), "id-digits": fmt.Sprint(2 * abi.MaxBuildID),
	})
	return []*cobra.Command{t.Command(command.Does("load", x.load, loaded{})), t.Family("fw",
		command.Does("fw build", x.build, built{}),
		command.Does("fw check", x.check, checked{}),
		command.Does("fw show", x.show, shown{}),
		command.Does("fw sign", x.sign, signed{}),
		command.Does("fw verify", x.verify, signed{}),
		command.Does("fw disasm", x.disassemble, listing{}),
		command.Does("fw keygen", x.keygen, generated{}),
		command.Does("fw status", x.status, statusReport{}),
		command.Does("fw rollback", x.rollback, statusReport{}),
		command.Does("fw unload", x.unload, statusReport{}),
		command.Does("fw map", x.maps, mapReport{}),
	)}
}
