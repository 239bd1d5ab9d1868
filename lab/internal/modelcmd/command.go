// Package modelcmd holds the commands of trapeze-lab that compute and draw: model with its
// subcommands, and plot.
package modelcmd

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// commands share what they need.
type commands struct{ *command.Env }

// Commands returns the commands "model" and "plot" with their subcommands.
func Commands(e *command.Env) []*cobra.Command {
	x := &commands{e}
	t := cmdtable.New(help, map[string]string{
		"policy-list": policyHelp(), "computations": computations(), "mechanisms": mechanismHelp(), "scenario-list": scenarioHelp(),
		"written": cmdtable.Keys(written{}), "halves": halves(), "scenarios": cellmodel.Names(), "busy": fmt.Sprint(cellmodel.MaxBusy),
		"learning": fmt.Sprint(report.Learning), "change-frames": fmt.Sprint(report.ChangeFrames),
		"systems": strings.Join(profile.Systems.Names(), ", "), "profiles": strings.Join(profile.Hosts.Names(), ", "),
		"all-profiles": strings.Join(profile.Hosts.Names(), ","), "goal-payloads": strings.Trim(strings.ReplaceAll(fmt.Sprint(report.GoalPayloads), " ", ","), "[]"),
		"compared": strings.Join(report.Compared, ","),
	})
	model := t.Command(figures(x, "model", (*caseFlags).measured, measure))
	model.AddCommand(t.Commands(
		cmdtable.Does("model compare", x.compare, comparison{}),
		figures(x, "model fetch", (*fetchFlags).measured, fetch),
		figures(x, "model transfer", (*transferFlags).options, transfer),
		catalogue(x, "model platforms", "platform", profile.Systems),
		figures(x, "model sweep", (*sweepFlags).cases, x.sweep),
		figures(x, "model project", (*projectFlags).projection, report.Projection.Run),
		figures(x, "model trunk", (*trunksFlags).cases, report.OnTrunk),
		figures(x, "model bridge", given, meet),
		figures(x, "model goals", given, x.goals),
		cmdtable.Does("model replay", x.replay, []replay.Engine{}),
		figures(x, "model fit", given, fitted),
		catalogue(x, "model profiles", "profile", profile.Hosts, profile.CellHosts, profile.Bridges),
	)...)
	plot := t.Family("plot",
		picture(x, "plot flow", (*flowFlags).drawn, report.Case.Flow),
		picture(x, "plot fetch", (*fetchFlags).measured, report.Case.Page),
		picture(x, "plot rate", (*rateFlags).drawn, report.Case.Rates),
		picture(x, "plot threshold", (*thresholdFlags).drawn, report.Case.Thresholds),
		picture(x, "plot schedules", (*onePayloadFlags).drawn, report.Case.Schedules),
		picture(x, "plot trunk", (*trunkPicture).one, report.Case.Trunks),
		picture(x, "plot project", (*projectFlags).projection, report.Projection.Draw),
		picture(x, "plot latency", payloadCurves(curvePayloads), report.Curves.Latencies),
		picture(x, "plot bandwidth", (*bandwidthFlags).drawn, pictured.Bandwidths),
		picture(x, "plot report", given, x.page),
	)
	run := func(o cellmodel.Options, _ context.Context) (*cellmodel.Result, error) { return cellmodel.Run(o) }
	cells := t.Command(figures(x, "model cells", (*cellFlags).options, run))
	drawn := t.Command(picture(x, "plot cells", (*cellPicture).shown, report.Cells.Draw))
	completeCells(cells)
	completeCells(drawn)
	model.AddCommand(cells)
	plot.AddCommand(drawn)
	return []*cobra.Command{model, plot}
}

// figures makes the row of a command that prints what it computes of what its flags ask for. As of methods, the
// context stands second.
func figures[F, O, R any](x *commands, name string, asked func(*F) (O, error), compute func(O, context.Context) (R, error)) cmdtable.Row {
	return cmdtable.Does(name, func(ctx context.Context, f *F, _ []string) error {
		o, err := asked(f)
		if err != nil {
			return err
		}
		r, err := compute(o, ctx)
		if err != nil {
			return err
		}
		return x.Report(r)
	}, *new(R))
}

// picture makes the row of a command that draws what its flags ask for.
func picture[F, O any](x *commands, name string, asked func(*F) (O, error), draw func(O, context.Context) ([]byte, error)) cmdtable.Row {
	type flags struct {
		Of F
		outputFile
	}
	return cmdtable.Does(name, func(ctx context.Context, f *flags, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		o, err := asked(&f.Of)
		if err != nil {
			return err
		}
		svg, err := draw(o, ctx)
		if err != nil {
			return err
		}
		return f.write(x.Env, svg)
	}, written{})
}

// given asks for what the flags say, which compute or draw checks.
func given[F any](f *F) (*F, error) { return f, nil }

func measure(c report.Case, ctx context.Context) (result, error) {
	c.Log = true
	m, err := c.Measure(ctx)
	if err != nil {
		return result{}, err
	}
	return result{m.Latency, m.Bandwidth, transfersOf(m.Log), m.Busy}, nil
}

func policyHelp() string {
	var b strings.Builder
	for _, n := range pipeline.Catalogue() {
		fmt.Fprintf(&b, "  %-18s %s\n", n.Name, n.Summary)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// profileFlag and policyFlag say where and how payloads move, and payloadFlag how large they are.
type profileFlag struct {
	Profile string `flag:"profile" default:"p6-natoma" help:"platform by name, or a TOML file"`
}

type policyFlag struct {
	Policy string `flag:"policy" default:"amp" help:"delivery policy"`
}

type payloadFlag struct {
	Payload int `flag:"payload" default:"8192" range:"1..16777216" help:"bytes of each payload"`
}

type loneFlags struct {
	profileFlag
	policyFlag
	payloadFlag
	MinPulseSend    int     `flag:"minpulse-send" help:"threshold or pulse of netTx in bytes, 1 to the payload (default: the policy's; policies without one ignore it)"`
	MinPulseReceive int     `flag:"minpulse-recv" help:"threshold or pulse of hostRcv in bytes, 1 to the payload (default: the policy's; policies without one ignore it)"`
	BlockCopy       float64 `flag:"block-copy" range:"0..99" help:"percent of the bus that a copy by the sending host's processor takes from the first hostTx, 0 to 99 (CS-1997-20: 70)"`
	LogCosts        bool    `flag:"log-costs" help:"the firmware keeps the papers' DMA log, at the cost of nic.log_send and nic.log_receive in the profile"`
	Given           cmdtable.Given
}

type caseFlags struct {
	loneFlags
	Count         int     `flag:"count" default:"100" range:"1..100000" help:"payloads of the stream"`
	Gap           float64 `flag:"gap-us" range:"0..1000000" help:"microseconds between postings (default: as fast as the host can)"`
	Poisson       bool    `flag:"poisson" help:"make the gaps exponential with mean --gap-us"`
	Seed          uint64  `flag:"seed" default:"1" help:"seed of the random gaps"`
	Bidirectional bool    `flag:"bidirectional" help:"both hosts send a stream; bandwidth is their sum"`
	Warmup        int     `flag:"warmup" range:"0..100000" help:"payloads sent one by one before measuring (default: {learning} for auto, which learns, otherwise 0)"`
}

func (f *loneFlags) measured() (report.Case, error) {
	return (&caseFlags{loneFlags: *f, Count: 1}).measured()
}

func (f *caseFlags) measured() (report.Case, error) {
	errs := []error{checkPolicies("--policy", f.Policy)}
	if f.Given("minpulse-send") {
		errs = append(errs, between("--minpulse-send", f.MinPulseSend, 1, f.Payload, "bytes, the payload"))
	}
	if f.Given("minpulse-recv") {
		errs = append(errs, between("--minpulse-recv", f.MinPulseReceive, 1, f.Payload, "bytes, the payload"))
	}
	if f.Poisson && !f.Given("gap-us") {
		errs = append(errs, usage("--poisson", "true", "together with --gap-us, the mean of the gaps"))
	}
	if f.Policy == "optimal" {
		errs = append(errs, between("--payload", f.Payload, 1, search.MaxPayload, "bytes for policy optimal"))
	}
	if err := cmp.Or(errs...); err != nil {
		return report.Case{}, err
	}
	if !f.Given("warmup") {
		f.Warmup = -1
	}
	p, err := loadProfile("--profile", f.Profile)
	if err != nil {
		return report.Case{}, err
	}
	if f.LogCosts && p.NIC.LogSend == 0 && p.NIC.LogReceive == 0 {
		return report.Case{}, usage("--log-costs", "true", "with a profile that has nic.log_send or nic.log_receive")
	}
	return report.Case{LogCosts: f.LogCosts, BlockCopy: f.BlockCopy / 100, Profile: p, Policy: f.Policy, MinPulseSend: f.MinPulseSend, MinPulseReceive: f.MinPulseReceive,
		Payload: f.Payload, Count: f.Count, Gap: profile.Micros(f.Gap), Random: f.Poisson, Seed: f.Seed,
		Bidirectional: f.Bidirectional, Warmup: f.Warmup}, nil
}
