package modelcmd

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func profilesCommand(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles [NAME]",
		Short: "List the built-in cost profiles, or print the TOML text of one",
		Long: `List the built-in cost profiles, or print the TOML text of one, to start a profile
of one's own from. Beside those of the list there are platforms for trapeze model cells: ` + strings.Join(profile.CellNames(), ", ") + `.

JSON keys, in an array, or in one object with NAME: name, summary, read_mb_s,
write_mb_s, link_mb_s, bus_duplex; with NAME also toml, the text, and of a platform with
cells only name, summary and toml.`,
		Example: `  trapeze model profiles
  trapeze model profiles p6-natoma > mine.toml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return printProfile(e, cmd.OutOrStdout(), args[0])
			}
			return listProfiles(cmd.OutOrStdout(), e.JSON)
		},
	}
	return cmd
}

// printProfile prints the text of a built-in profile.
func printProfile(e *command.Env, w io.Writer, name string) error {
	text, err := profile.Source(name)
	cells := err != nil
	if cells {
		text, err = profile.CellSource(name)
	}
	switch {
	case err != nil:
		return usage("profile", name, strings.Join(slices.Concat(profile.Names(), profile.CellNames()), ", "))
	case !e.JSON:
		_, err = w.Write(text)
		return err
	case cells:
		p, err := profile.LoadCells(name)
		if err != nil {
			return err
		}
		return e.PrintJSON(struct {
			Name    string `json:"name"`
			Summary string `json:"summary"`
			TOML    string `json:"toml"`
		}{name, p.Summary, string(text)})
	}
	p, err := listed(name)
	if err != nil {
		return err
	}
	return e.PrintJSON(struct {
		listedProfile
		TOML string `json:"toml"`
	}{p, string(text)})
}

type listedProfile struct {
	Name    string  `json:"name"`
	Summary string  `json:"summary"`
	Read    float64 `json:"read_mb_s"`
	Write   float64 `json:"write_mb_s"`
	Link    float64 `json:"link_mb_s"`
	Duplex  string  `json:"bus_duplex"`
}

// listed is what the list says about a profile.
func listed(name string) (listedProfile, error) {
	p, err := profile.Load(name)
	if err != nil {
		return listedProfile{}, err
	}
	duplex := "half"
	if p.Sender.FullDuplex {
		duplex = "full"
	}
	mbs := func(c profile.Cost) float64 { return math.Round(c.Bandwidth()*10) / 10 }
	return listedProfile{name, p.Summary, mbs(p.Sender.Read), mbs(p.Receiver.Write), mbs(p.Link.Pulse), duplex}, nil
}

func listProfiles(w io.Writer, asJSON bool) error {
	var list []listedProfile
	for _, name := range profile.Names() {
		p, err := listed(name)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	if asJSON {
		return command.WriteJSON(w, list)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "name\tread MB/s\twrite MB/s\tlink MB/s\tbus\tsummary")
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%g\t%g\t%g\t%s duplex\t%s\n", p.Name, p.Read, p.Write, p.Link, p.Duplex, p.Summary)
	}
	return t.Flush()
}
