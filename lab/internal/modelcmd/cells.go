package modelcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

type cellFlags struct {
	Profile string `flag:"profile" default:"mini" help:"platform with cells by name, or a TOML file"`
	cellmodel.Options
}

// completeCells has a shell offer the platforms with cells, and the scenarios.
func completeCells(c *cobra.Command) {
	cobra.CheckErr(c.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profile.CellHosts.Names(), cobra.ShellCompDirectiveDefault)))
	cobra.CheckErr(c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(strings.Split(cellmodel.Names(), ", "), cobra.ShellCompDirectiveNoFileComp)))
}

func (f *cellFlags) options() (o cellmodel.Options, err error) {
	f.Platform, err = builtIn("--profile", f.Profile, profile.CellHosts)
	return f.Options, err
}

func scenarioHelp() string {
	var b strings.Builder
	for _, s := range cellmodel.Scenarios() {
		fmt.Fprintf(&b, "  %-10s %s (%d bytes)\n", s.Name, s.Summary, s.Bytes)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cellPicture shows what NICs do with each cell. Some hundred cells can be told apart.
type cellPicture struct {
	cellFlags
	Until float64 `flag:"until-us" default:"40" range:"0..1000000" help:"microseconds that are shown, 0 for all"`
}

func (f *cellPicture) shown() (report.Cells, error) {
	o, err := f.options()
	return report.Cells{Options: o, Until: profile.Micros(f.Until)}, err
}
