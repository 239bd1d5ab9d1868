package main

import (
	"slices"

	"github.com/spf13/cobra"

	// Make "emu:", "afxdp:" and "vfio-user:" addresses known, which bench opens.
	_ "github.com/trapeze-nic/trapeze/emulator"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
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
	HelpExample: `  trapeze-lab help model sweep
  trapeze-lab help exit-codes`,
	Commands: lab.Commands,
	Values: map[string]shell.Completer{
		"policy":   shell.OneOf(pipeline.PolicyNames()...),
		"policies": shell.EachOf(shell.OneOf(pipeline.PolicyNames()...)),
		"profile":  completeProfile,
		"profiles": shell.EachOf(completeProfile),
		"sides":    shell.OneOf("both", "send", "recv"),
		"half":     shell.OneOf("latencies", "bandwidths", "store-and-forward", "cut-through"),

		"tests":       shell.EachOf(shell.OneOf(values["tests"]...)),
		"wire":        shell.OneOf(values["wires"]...),
		"wires":       shell.EachOf(shell.OneOf(values["wires"]...)),
		"placement":   shell.OneOf(placements...),
		"placements":  shell.EachOf(shell.OneOf(placements...)),
		"reliability": shell.EachOf(shell.OneOf(values["reliability"]...)),
		"curves":      shell.EachOf(shell.OneOf(values["curves"]...)),
		"cores":       shell.OneOf("auto", "none"),
	},
	Arguments: map[string]shell.Completer{
		"model profiles": shell.OneOf(slices.Concat(values["profiles"], values["cells"])...),
	},
	OwnReport: name + " bench",
}

var placements = []string{"default", "inline", "thread"}

// completeProfile offers the built-in platforms, and files.
func completeProfile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return values["profiles"], cobra.ShellCompDirectiveDefault
}
