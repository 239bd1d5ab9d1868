package modelcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

type transferFlags struct {
	Platform string `flag:"platform" default:"sonic-via" help:"memory system by name, or a TOML file"`
	coherence.Options
	Given cmdtable.Given
}

func (f *transferFlags) options() (o coherence.Options, err error) {
	if f.Given("dma-rate") && f.DMARate == 0 {
		return o, usage("--dma-rate", "0", "1 MB/s to the platform's")
	}
	f.System, err = builtIn("--platform", f.Platform, profile.Systems)
	return f.Options, err
}

type transferred struct {
	*coherence.Result
	Execution profile.Time `json:"execution_us" help:"the rest of transfer_us"`
	Receiving profile.Time `json:"transport_receiving_us" help:"the rest of transport_us"`
	Total     profile.Time `json:"total_us"`
	Count     int          `json:"bus_transactions"`
	Kinds     []counted    `json:"kinds"`
}

// counted are transactions that are alike.
type counted struct {
	Side         coherence.Side   `json:"side"`
	Agent        coherence.Agent  `json:"agent"`
	Kind         coherence.Kind   `json:"kind"`
	Region       coherence.Region `json:"region"`
	Transactions int              `json:"transactions"`
}

func transfer(o coherence.Options, ctx context.Context) (t transferred, err error) {
	r, err := coherence.Run(ctx, o)
	if err != nil {
		return t, err
	}
	t = transferred{Result: r, Execution: r.Execution(), Receiving: r.Transport - r.SendTransport, Total: r.Total(), Count: len(r.Transactions)}
	for _, x := range r.Transactions {
		k := counted{Side: x.Side, Agent: x.Agent, Kind: x.Kind, Region: x.Region}
		i := slices.IndexFunc(t.Kinds, func(c counted) bool { c.Transactions = 0; return c == k })
		if i < 0 {
			i, t.Kinds = len(t.Kinds), append(t.Kinds, k)
		}
		t.Kinds[i].Transactions++
	}
	return t, nil
}

// mechanismHelp lists the mechanisms, and what they are on PCIe if that differs.
func mechanismHelp() string {
	var b strings.Builder
	for _, m := range coherence.Mechanisms(nil) {
		fmt.Fprintf(&b, "  %-13s %s\n", m, m.Summary(false))
		if p := m.Summary(true); p != m.Summary(false) {
			fmt.Fprintf(&b, "  %-13s on PCIe: %s\n", "", p)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// bridgeFlags say who meets at a bridge.
type bridgeFlags struct {
	Platform string              `flag:"platform" default:"natoma" help:"platform with a bridge by name, or a TOML file"`
	DMA      coherence.Direction `flag:"dma" default:"send" oneof:"send,receive,none" help:"what the NIC does: send (it reads host memory), receive (it writes it) or none"`
	Programs []coherence.Program `flag:"programs" split:"comma" default:"copy,pio-write,pio-read" oneof:"copy,pio-write,pio-read,none" help:"what the processor does: copy, pio-write, pio-read or none"`
	Bytes    int                 `flag:"bytes" default:"8192" help:"bytes of each DMA transfer"`
}

// met is a program of the processor that has met DMA at a bridge.
type met struct {
	Program coherence.Program   `json:"program"`
	With    coherence.Direction `json:"with"`
	coherence.Outcome
}

func meet(f *bridgeFlags, ctx context.Context) (all []met, err error) {
	if len(f.Programs) > len(coherence.Programs) {
		return nil, usage("--programs", fmt.Sprint(f.Programs), fmt.Sprintf("1 to %d of them", len(coherence.Programs)))
	}
	s, err := builtIn("--platform", f.Platform, profile.Bridges)
	if err != nil {
		return nil, err
	}
	for _, p := range f.Programs {
		r, err := coherence.AtBridge(ctx, coherence.Contest{System: s, Program: p, DMA: f.DMA, Bytes: f.Bytes})
		if err != nil {
			return nil, err
		}
		all = append(all, met{p, f.DMA, *r})
	}
	return all, nil
}

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
