// Package telemetrycmd has the commands that look at NICs of other processes: they ask the
// telemetry sockets of those, and open no NIC.
package telemetrycmd

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/filter"
)

// help has the help of the commands, see command.NewTable.
//
//go:embed help.txt
var help string

// commands gives the commands their methods.
type commands struct{ *command.Env }

// Commands are those of trapeze.
func Commands(e *command.Env) []*cobra.Command {
	x := &commands{e}
	return command.NewTable(help, map[string]string{"filter": filter.Help}).Commands(
		command.Does("ps", x.ps, psReport{}),
		command.Does("stats", x.stats, statsReport{}),
		command.Does("top", x.top, nil),
		command.Does("log", x.log, logReport{}),
		command.Does("capture", x.capture, captureReport{}),
		command.Does("serve-metrics", x.serveMetrics, metricsReport{}),
		command.Does("web", x.web, webReport{}),
	)
}
