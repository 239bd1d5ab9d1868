// Package modelcmd holds the commands of trapeze-lab that compute and draw: model with its
// subcommands, and plot.
package modelcmd

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/fit"
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
		"written": keys.List(written{}), "halves": halves(), "scenarios": cellmodel.Names(), "busy": fmt.Sprint(cellmodel.MaxBusy),
		"learning": fmt.Sprint(report.Learning), "change-frames": fmt.Sprint(report.ChangeFrames),
		"systems": strings.Join(profile.Systems.Names(), ", "), "cell-hosts": strings.Join(profile.CellHosts.Names(), ", "),
		"bridges": strings.Join(profile.Bridges.Names(), ", "), "profiles": strings.Join(profile.Hosts.Names(), ", "),
		"all-profiles": strings.Join(profile.Hosts.Names(), ","), "goal-payloads": strings.Trim(strings.ReplaceAll(fmt.Sprint(report.GoalPayloads), " ", ","), "[]"),
		"compared": strings.Join(report.Compared, ","), "effort": fmt.Sprint(fit.DefaultEffort.Restarts),
	})
	model := t.Command(cmdtable.Does("model", x.model, result{}))
	model.AddCommand(t.Commands(
		cmdtable.Does("model compare", x.compare, comparison{}),
		cmdtable.Does("model fetch", x.fetch, fetched{}),
		cmdtable.Does("model transfer", x.transfer, transferred{}),
		cmdtable.Does("model platforms", x.platforms, []listedPlatform{}),
		cmdtable.Does("model sweep", x.sweep, []sweepRow{}),
		cmdtable.Does("model project", x.project, []report.Projected{}),
		cmdtable.Does("model trunk", x.trunk, []report.Shared{}),
		cmdtable.Does("model bridge", x.bridge, []report.Met{}),
		cmdtable.Does("model goals", x.goals, []report.Goal{}),
		cmdtable.Does("model replay", x.replay, []replay.Engine{}),
		cmdtable.Does("model fit", x.fit, fitResult{}),
		cmdtable.Does("model profiles", x.profiles, []listedProfile{}),
	)...)
	plot := t.Family("plot",
		picture(x, "plot flow", (*flowFlags).draw),
		picture(x, "plot fetch", (*fetchFlags).draw),
		picture(x, "plot transfer", (*transferPicture).draw),
		picture(x, "plot rate", (*rateFlags).draw),
		picture(x, "plot threshold", onePayload(1<<20, report.Thresholds)),
		picture(x, "plot schedules", onePayload(report.MaxScheduled, report.Schedules)),
		picture(x, "plot trunk", (*trunkPicture).draw),
		picture(x, "plot bridge", (*bridgeFlags).draw),
		picture(x, "plot latency", payloadCurves(report.Latencies, curvePayloads)),
		picture(x, "plot bandwidth", payloadCurves(report.Bandwidths, widePayloads)),
		picture(x, "plot report", x.page),
	)
	cells, drawn := t.Command(cmdtable.Does("model cells", x.cells, cellmodel.Result{})), t.Command(picture(x, "plot cells", (*cellPicture).draw))
	completeCells(cells)
	completeCells(drawn)
	model.AddCommand(cells)
	plot.AddCommand(drawn)
	return []*cobra.Command{model, plot}
}

// model measures one case.
func (x *commands) model(ctx context.Context, f *caseFlags, _ []string) error {
	c, err := f.measured()
	if err != nil {
		return err
	}
	c.Log = true
	figures, err := c.Measure(ctx)
	if err != nil {
		return err
	}
	r := result{figures.Latency, figures.Bandwidth, transfersOf(figures.Log), figures.Busy}
	return x.Print(r, func(w io.Writer) error { return writeText(w, &c, &r) })
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
	Payload int `flag:"payload" default:"8192" help:"bytes of each payload"`
}

// loneFlags are the flags that describe a measurement of one payload.
type loneFlags struct {
	profileFlag
	policyFlag
	payloadFlag
	MinPulseSend    int  `flag:"minpulse-send" help:"threshold or pulse of netTx in bytes, 1 to the payload (default: the policy's; policies without one ignore it)"`
	MinPulseReceive int  `flag:"minpulse-recv" help:"threshold or pulse of hostRcv in bytes, 1 to the payload (default: the policy's; policies without one ignore it)"`
	LogCosts        bool `flag:"log-costs" help:"the firmware keeps the papers' DMA log, at the cost of nic.log_send and nic.log_receive in the profile"`
	Given           cmdtable.Given
}

// caseFlags are the flags that describe one measurement.
type caseFlags struct {
	loneFlags
	Count         int     `flag:"count" default:"100" help:"payloads of the stream"`
	Gap           float64 `flag:"gap-us" help:"microseconds between postings (default: as fast as the host can)"`
	Poisson       bool    `flag:"poisson" help:"make the gaps exponential with mean --gap-us"`
	Seed          uint64  `flag:"seed" default:"1" help:"seed of the random gaps"`
	Bidirectional bool    `flag:"bidirectional" help:"both hosts send a stream; bandwidth is their sum"`
	Warmup        int     `flag:"warmup" default:"-1" help:"payloads sent one by one before measuring (default: {learning} for auto, which learns, otherwise 0)"`
}

// measured checks the flags and loads the profile.
func (f *loneFlags) measured() (report.Case, error) {
	return (&caseFlags{loneFlags: *f, Count: 1, Warmup: -1}).measured()
}

// measured checks the flags and loads the profile.
func (f *caseFlags) measured() (report.Case, error) {
	errs := []error{
		checkPolicies("--policy", f.Policy),
		between("--payload", f.Payload, 1, pipeline.MaxFrame, "bytes"),
		between("--count", f.Count, 1, maxCount, ""),
		between("--gap-us", f.Gap, 0, maxGap, ""),
	}
	if f.Given("minpulse-send") {
		errs = append(errs, between("--minpulse-send", f.MinPulseSend, 1, f.Payload, "bytes, the payload"))
	}
	if f.Given("minpulse-recv") {
		errs = append(errs, between("--minpulse-recv", f.MinPulseReceive, 1, f.Payload, "bytes, the payload"))
	}
	if f.Poisson && !f.Given("gap-us") {
		errs = append(errs, usage("--poisson", "true", "together with --gap-us, the mean of the gaps"))
	}
	if f.Given("warmup") {
		errs = append(errs, between("--warmup", f.Warmup, 0, maxCount, ""))
	}
	if f.Policy == "optimal" {
		errs = append(errs, between("--payload", f.Payload, 1, search.MaxPayload, "bytes for policy optimal"))
	}
	if err := cmp.Or(errs...); err != nil {
		return report.Case{}, err
	}
	p, err := loadProfile("--profile", f.Profile)
	if err != nil {
		return report.Case{}, err
	}
	if f.LogCosts && p.NIC.LogSend == 0 && p.NIC.LogReceive == 0 {
		return report.Case{}, usage("--log-costs", "true", "with a profile that has nic.log_send or nic.log_receive")
	}
	return report.Case{LogCosts: f.LogCosts, Profile: p, Policy: f.Policy, MinPulseSend: f.MinPulseSend, MinPulseReceive: f.MinPulseReceive,
		Payload: f.Payload, Count: f.Count, Gap: profile.Micros(f.Gap), Random: f.Poisson, Seed: f.Seed,
		Bidirectional: f.Bidirectional, Warmup: f.Warmup}, nil
}

// Limits of what one command computes.
const (
	maxCount = 100_000
	maxGap   = 1e6
)
