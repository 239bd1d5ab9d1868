package modelcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// cellFlags describe a scenario.
type cellFlags struct {
	Profile      string  `flag:"profile" default:"mini" help:"platform with cells by name, or a TOML file"`
	Scenario     string  `flag:"scenario" default:"single" help:"what the hosts do: {scenarios}"`
	Bytes        int     `flag:"bytes" help:"bytes of each message, without AAL5's trailer (default: the scenario's)"`
	Participants int     `flag:"participants" help:"hosts that meet in a barrier, or that a multicast is for (default: 16)"`
	Busy         float64 `flag:"busy" help:"percent of the receiving host's memory that others use, 0 to {busy}, with scenario contention"`
	NeverStop    bool    `flag:"never-stop" help:"no peer is told to stop while the receive FIFO is nearly full, with scenario contention"`
	Given        cmdtable.Given
}

// completeCells has a shell offer the platforms with cells, and the scenarios.
func completeCells(c *cobra.Command) {
	cobra.CheckErr(c.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profile.CellHosts.Names(), cobra.ShellCompDirectiveDefault)))
	cobra.CheckErr(c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(strings.Split(cellmodel.Names(), ", "), cobra.ShellCompDirectiveNoFileComp)))
}

// options checks the flags and loads the platform.
func (f *cellFlags) options() (cellmodel.Options, error) {
	s, err := cellmodel.ByName(f.Scenario)
	if err != nil {
		return cellmodel.Options{}, err
	}
	if f.Given("bytes") {
		err = between("--bytes", f.Bytes, 1, s.MaxBytes, "with scenario "+s.Name)
	}
	if f.Given("participants") && s.Participants != 0 {
		err = errors.Join(err, between("--participants", f.Participants, 1, cellmodel.MaxParticipants, ""))
	}
	if f.Given("participants") && s.Participants == 0 {
		err = errors.Join(err, usage("--participants", fmt.Sprint(f.Participants), "with scenarios barrier and multicast"))
	}
	if err != nil {
		return cellmodel.Options{}, err
	}
	p, err := builtIn("--profile", f.Profile, profile.CellHosts)
	return cellmodel.Options{Platform: p, Scenario: f.Scenario, Bytes: f.Bytes, Participants: f.Participants, Busy: f.Busy, NeverStop: f.NeverStop}, err
}

func (x *commands) cells(_ context.Context, f *cellFlags, _ []string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	r, err := cellmodel.Run(o)
	if err != nil {
		return err
	}
	return x.Print(r, func(w io.Writer) error { return writeCells(w, o, r) })
}

func scenarioHelp() string {
	var b strings.Builder
	for _, s := range cellmodel.Scenarios() {
		fmt.Fprintf(&b, "  %-10s %s (%d bytes)\n", s.Name, s.Summary, s.Bytes)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func writeCells(w io.Writer, o cellmodel.Options, r *cellmodel.Result) error {
	fmt.Fprintf(w, "%s, %s\n", o.Platform.Name, o.Scenario)
	t := tabwriter.NewWriter(w, 0, 4, 1, ' ', tabwriter.AlignRight)
	for _, l := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"one way", r.OneWay.Microseconds(), "us"}, {"cell interval", r.Interval.Microseconds(), "us"}, {"data", r.Data, "Gb/s"}, {"total", r.Total, "Gb/s"},
		{"round trip", r.RoundTrip.Microseconds(), "us"}, {"barrier", r.Barrier.Microseconds(), "us"}, {"slowest urgent", r.Urgent.Microseconds(), "us"},
	} {
		if l.value > 0 {
			fmt.Fprintf(t, "%s\t%.3f\t %s\n", l.name, l.value, l.unit)
		}
	}
	if r.Stores > 0 {
		fmt.Fprintf(t, "stores\t%d\t\n", r.Stores)
	}
	if o.Scenario == "contention" {
		fmt.Fprintf(t, "messages whole\t%d\t\nstops\t%d\t\nmost cells in the FIFO\t%d\t\n", r.Whole, r.Stops, r.Highest)
		for _, l := range r.Lost {
			fmt.Fprintf(t, "lost, channel %d\t%d\t cells\n", l.Channel, l.Cells)
		}
	}
	steps := map[cells.Step]int{}
	for _, l := range r.Transfers {
		steps[l.Step]++
	}
	fmt.Fprintf(t, "cells sent\t%d\t\n", steps[cells.High]+steps[cells.Low])
	return t.Flush()
}

// cellPicture shows what NICs do with each cell. Some hundred cells can be told apart.
type cellPicture struct {
	cellFlags
	Until float64 `flag:"until-us" default:"40" help:"microseconds that are shown, 0 for all"`
}

func (f *cellPicture) draw(context.Context) ([]byte, error) {
	if err := between("--until-us", f.Until, 0, maxGap, ""); err != nil {
		return nil, err
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return report.CellGraph(o, profile.Micros(f.Until))
}
