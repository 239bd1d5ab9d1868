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
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

const defaultCellProfile = "mini"

// cellFlags describe a scenario.
type cellFlags struct {
	profile             string
	scenario            string
	bytes, participants int
	busy                float64
	neverStop           bool
	cmd                 *cobra.Command
}

func (f *cellFlags) register(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", defaultCellProfile, "platform with cells by name, or a TOML file")
	flags.StringVar(&f.scenario, "scenario", "single", "what the hosts do: "+cellmodel.Names())
	flags.IntVar(&f.bytes, "bytes", 0, "bytes of each message, without AAL5's trailer (default: the scenario's)")
	flags.IntVar(&f.participants, "participants", 0, "hosts that meet in a barrier, or that a multicast is for (default: 16)")
	flags.Float64Var(&f.busy, "busy", 0, fmt.Sprintf("percent of the receiving host's memory that others use, 0 to %d, with scenario contention", cellmodel.MaxBusy))
	flags.BoolVar(&f.neverStop, "never-stop", false, "no peer is told to stop while the receive FIFO is nearly full, with scenario contention")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profile.CellHosts.Names(), cobra.ShellCompDirectiveDefault)))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(strings.Split(cellmodel.Names(), ", "), cobra.ShellCompDirectiveNoFileComp)))
}

// options checks the flags and loads the platform.
func (f *cellFlags) options() (cellmodel.Options, error) {
	s, err := cellmodel.ByName(f.scenario)
	if err != nil {
		return cellmodel.Options{}, err
	}
	flags := f.cmd.Flags()
	if flags.Changed("bytes") {
		err = between("--bytes", f.bytes, 1, s.MaxBytes, "with scenario "+s.Name)
	}
	if flags.Changed("participants") && s.Participants != 0 {
		err = errors.Join(err, between("--participants", f.participants, 1, cellmodel.MaxParticipants, ""))
	}
	if flags.Changed("participants") && s.Participants == 0 {
		err = errors.Join(err, usage("--participants", fmt.Sprint(f.participants), "with scenarios barrier and multicast"))
	}
	if err != nil {
		return cellmodel.Options{}, err
	}
	p, err := builtIn("--profile", f.profile, profile.CellHosts)
	return cellmodel.Options{Platform: p, Scenario: f.scenario, Bytes: f.bytes, Participants: f.participants, Busy: f.busy, NeverStop: f.neverStop}, err
}

func cellsCommand(e *command.Env) *cobra.Command {
	var f cellFlags
	var o cellmodel.Options
	cmd := &cobra.Command{
		Use:   "cells",
		Short: "Compute what cells take that cross NICs with channels",
		Long: `Sends messages as cells of 48 bytes through NICs with channels, in virtual time, on
a platform whose NICs send or receive one cell at a time: MINI, the memory-integrated
network interface, unless --profile names a file (trapeze-lab model profiles mini prints one
to start from; base = "mini" takes from it what the file does not say). Cells are cut, and the next one is chosen, by the code that does so with
real cells.

Scenarios:
` + scenarioHelp() + `
one_way_us     from the store that sends a message until the receiving program can see
               all of it; of the long message with scenario priority
interval_us    between cells that arrive one behind the other
data_gb_s      messages' own bytes, without trailers and padding, each way; with bounce,
               those of one message in each round trip
total_gb_s     cells as they are inside a NIC, with their headers, each way
round_trip_us  from a program's store until it can begin the next one, its answer having
               come and been noticed; with barrier, from the participants' stores until
               the last of them has its answer
barrier_us     that the coordinator's NIC works for the barrier
messages_whole, stops, fifo_cells_highest, lost
               of scenario contention; lost cells are counted for each channel
urgent_us      the slowest of cells of high priority that come at all phases of a
               message of low priority

` + keys.Of(cellmodel.Result{}),
		Example: `  trapeze-lab model cells --scenario bounce --json
  trapeze-lab model cells --scenario barrier --participants 64
  trapeze-lab model cells --scenario contention --busy 50 --never-stop
  trapeze-lab model cells --scenario message --bytes 8192`,
		Args: cobra.NoArgs,
		RunE: command.Show(e, func(context.Context) (r *cellmodel.Result, err error) {
			if o, err = f.options(); err != nil {
				return nil, err
			}
			return cellmodel.Run(o)
		}, func(w io.Writer, r *cellmodel.Result) error { return writeCells(w, o, r) }),
	}
	f.register(cmd)
	return cmd
}

func scenarioHelp() string {
	var b strings.Builder
	for _, s := range cellmodel.Scenarios() {
		fmt.Fprintf(&b, "  %-10s %s (%d bytes)\n", s.Name, s.Summary, s.Bytes)
	}
	return b.String()
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

// cellPicture draws what NICs do with each cell.
func cellPicture(e *command.Env) *cobra.Command {
	var f cellFlags
	var until float64
	cmd := picture(e, "cells", "Cells in time: one band for receive, high and low at each host, one stripe for each cell",
		"--scenario priority", func(context.Context) ([]byte, error) {
			if err := between("--until-us", until, 0, maxGap, ""); err != nil {
				return nil, err
			}
			o, err := f.options()
			if err != nil {
				return nil, err
			}
			return report.CellGraph(o, profile.Micros(until))
		})
	f.register(cmd)
	// Some hundred cells can be told apart.
	cmd.Flags().Float64Var(&until, "until-us", 40, "microseconds that are shown, 0 for all")
	return cmd
}
