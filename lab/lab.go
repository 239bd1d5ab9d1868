// Package lab has the commands of trapeze-lab: bench measures NICs, model computes what policies
// do on platforms, and plot draws both.
package lab

import (
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/benchcmd"
	"github.com/trapeze-nic/trapeze/lab/internal/modelcmd"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

// Commands makes the commands, and the hidden one with which bench starts its workers.
func Commands(e *command.Env) []*cobra.Command {
	return append(benchcmd.Commands(e), modelcmd.Commands(e)...)
}

// Values has the words that flags take, by the name of the flag. "cells" has the platforms with
// cells that "model profiles" also prints.
func Values() map[string][]string {
	return map[string][]string{
		"tests":    bench.Questions(true),
		"wires":    bench.Wires(),
		"curves":   scaling.Names(),
		"profiles": profile.Hosts.Names(),
		"cells":    profile.CellHosts.Names(),
	}
}
