// Package trapezelab is the command trapeze-lab, but for its main function in cmd/trapeze-lab.
package trapezelab

import (
	"slices"

	"github.com/spf13/cobra"

	// Make "emu:", "afxdp:" and "vfio-user:" addresses known, which bench opens.
	_ "github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	_ "github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// name is the program's.
const name = "trapeze-lab"

var values = lab.Values()

var program = shell.Program{
	Name:  name,
	Short: "Figures and models of programmable NICs",
	Long: `trapeze-lab measures emulated NICs between two processes (bench), computes what
policies do on platforms old and new (model), and draws both (plot). trapeze runs NICs.`,
	Example: `  trapeze-lab bench --sizes 64
  trapeze-lab model --profile alcor --policy amp
  trapeze-lab plot flow --policy amp --output flow.svg`,
	Commands: lab.Commands,
	Values: map[string]shell.Completer{
		"policy":   shell.OneOf(pipeline.PolicyNames()...),
		"policies": cmdtable.EachOf(shell.OneOf(pipeline.PolicyNames()...)),
		"profile":  completeProfile,
		"profiles": cmdtable.EachOf(completeProfile),
		"half":     shell.OneOf("latencies", "bandwidths", "store-and-forward", "cut-through"),

		"tests":  cmdtable.EachOf(shell.OneOf(values["tests"]...)),
		"wire":   shell.OneOf(values["wires"]...),
		"wires":  cmdtable.EachOf(shell.OneOf(values["wires"]...)),
		"curves": cmdtable.EachOf(shell.OneOf(values["curves"]...)),
		"cores":  shell.OneOf("auto", "none"),
	},
	Arguments: map[string]shell.Completer{
		"model profiles": shell.OneOf(slices.Concat(values["profiles"], values["cells"])...),
	},
	OwnReport: name + " bench",
}

// Main runs the command with what this process has been given, and returns its exit code.
func Main() int { return program.Main() }

// completeProfile offers the built-in platforms, and files.
func completeProfile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return values["profiles"], cobra.ShellCompDirectiveDefault
}
