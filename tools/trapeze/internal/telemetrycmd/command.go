// Package telemetrycmd has the commands that look at NICs of other processes: they ask the
// telemetry sockets of those, and open no NIC.
package telemetrycmd

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/match"
)

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// commands gives the commands their methods.
type commands struct{ *command.Env }

// Commands are those of trapeze.
func Commands(e *command.Env) []*cobra.Command {
	x := &commands{e}
	return cmdtable.New(help, map[string]string{"match": match.Help}).Commands(
		cmdtable.Does("ps", x.ps, psReport{}),
		cmdtable.Does("stats", x.stats, statsReport{}),
		cmdtable.Does("top", x.top, nil),
		cmdtable.Does("log", x.log, logReport{}),
		cmdtable.Does("capture", x.capture, captureReport{}),
		cmdtable.Does("serve-metrics", x.serveMetrics, metricsReport{}),
		cmdtable.Does("web", x.web, webReport{}),
	)
}
