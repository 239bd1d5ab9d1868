// Package modelcmd holds the commands of trapeze-lab that compute and draw: model with its
// subcommands, and plot.
package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Defaults of the flags.
const (
	defaultProfile = "p6-natoma"
	defaultPolicy  = "amp"
	defaultPayload = 8192
	defaultCount   = 100
)

// Command returns the command "model" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	var f caseFlags
	var c report.Case
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Compute latency, bandwidth and every transfer of a policy on a platform",
		Long: `Moves payloads through the same scheduler and policies that move real bytes, in
virtual time, on a platform described by a cost profile.

latency_us    one way, one payload on an idle system
bandwidth_mb_s  of a stream of --count payloads (MB = 10^6 bytes), over its second half
bus_busy_us   time that both hosts' buses were occupied during the stream

Policies:
` + policyHelp() + `
Profiles: ` + strings.Join(profile.Hosts.Names(), ", ") + `,
or a TOML file (trapeze-lab model profiles NAME prints one to start from; base = "NAME"
takes from another what the file does not say).

` + keys.Of(result{}),
		Example: `  trapeze-lab model --profile p6-natoma --policy amp --payload 8192 --json
  trapeze-lab model --profile p6-natoma --policy amp --count 1 --log-costs --json
  trapeze-lab model --profile alcor --policy static --minpulse-send 1280 --minpulse-recv 1280`,
		Args: cobra.NoArgs,
		RunE: command.Show(e, func(ctx context.Context) (r result, err error) {
			if c, err = f.measured(); err != nil {
				return r, err
			}
			c.Log = true
			figures, err := c.Measure(ctx)
			if err != nil {
				return r, err
			}
			return result{figures.Latency, figures.Bandwidth, transfersOf(figures.Log), figures.Busy}, nil
		}, func(w io.Writer, r result) error { return writeText(w, &c, &r) }),
	}
	f.register(cmd)
	cmd.AddCommand(compareCommand(e), fetchCommand(e), transferCommand(e), cellsCommand(e), platformsCommand(e), sweepCommand(e), projectCommand(e), trunkCommand(e), bridgeCommand(e), goalsCommand(e), replayCommand(e), fitCommand(e), profilesCommand(e))
	return cmd
}

func policyHelp() string {
	var b strings.Builder
	for _, n := range pipeline.Catalogue() {
		fmt.Fprintf(&b, "  %-18s %s\n", n.Name, n.Summary)
	}
	return b.String()
}

// caseFlags are the flags that describe one measurement.
type caseFlags struct {
	profile, policy           string
	minpulseSend, minpulseRcv int
	payload, count, warmup    int
	gap                       float64
	poisson, bidirectional    bool
	logCosts                  bool
	seed                      uint64
	cmd                       *cobra.Command
}

// registerLone adds the flags of a measurement of one payload.
func (f *caseFlags) registerLone(cmd *cobra.Command) {
	f.cmd, f.count, f.warmup = cmd, 1, -1
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", defaultProfile, "platform by name, or a TOML file")
	flags.StringVar(&f.policy, "policy", defaultPolicy, "delivery policy")
	flags.IntVar(&f.minpulseSend, "minpulse-send", 0, "threshold or pulse of netTx in bytes, 1 to the payload (default: the policy's; policies without one ignore it)")
	flags.IntVar(&f.minpulseRcv, "minpulse-recv", 0, "threshold or pulse of hostRcv in bytes, 1 to the payload (default: the policy's; policies without one ignore it)")
	flags.IntVar(&f.payload, "payload", defaultPayload, "bytes of each payload")
	flags.BoolVar(&f.logCosts, "log-costs", false, "the firmware keeps the papers' DMA log, at the cost of nic.log_send and nic.log_receive in the profile")
}

func (f *caseFlags) register(cmd *cobra.Command) {
	f.registerLone(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.count, "count", defaultCount, "payloads of the stream")
	flags.Float64Var(&f.gap, "gap-us", 0, "microseconds between postings (default: as fast as the host can)")
	flags.BoolVar(&f.poisson, "poisson", false, "make the gaps exponential with mean --gap-us")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the random gaps")
	flags.BoolVar(&f.bidirectional, "bidirectional", false, "both hosts send a stream; bandwidth is their sum")
	flags.IntVar(&f.warmup, "warmup", -1, fmt.Sprintf("payloads sent one by one before measuring (default: %d for auto, which learns, otherwise 0)", report.Learning))
}

// measured checks the flags and loads the profile.
func (f *caseFlags) measured() (report.Case, error) {
	errs := []error{
		checkPolicies("--policy", f.policy),
		between("--payload", f.payload, 1, pipeline.MaxFrame, "bytes"),
		between("--count", f.count, 1, maxCount, ""),
		between("--gap-us", f.gap, 0, maxGap, ""),
	}
	flags := f.cmd.Flags()
	if flags.Changed("minpulse-send") {
		errs = append(errs, between("--minpulse-send", f.minpulseSend, 1, f.payload, "bytes, the payload"))
	}
	if flags.Changed("minpulse-recv") {
		errs = append(errs, between("--minpulse-recv", f.minpulseRcv, 1, f.payload, "bytes, the payload"))
	}
	if f.poisson && !flags.Changed("gap-us") {
		errs = append(errs, usage("--poisson", "true", "together with --gap-us, the mean of the gaps"))
	}
	if flags.Changed("warmup") {
		errs = append(errs, between("--warmup", f.warmup, 0, maxCount, ""))
	}
	if f.policy == "optimal" {
		errs = append(errs, between("--payload", f.payload, 1, search.MaxPayload, "bytes for policy optimal"))
	}
	if err := cmp.Or(errs...); err != nil {
		return report.Case{}, err
	}
	p, err := loadProfile("--profile", f.profile)
	if err != nil {
		return report.Case{}, err
	}
	if f.logCosts && p.NIC.LogSend == 0 && p.NIC.LogReceive == 0 {
		return report.Case{}, usage("--log-costs", "true", "with a profile that has nic.log_send or nic.log_receive")
	}
	return report.Case{LogCosts: f.logCosts, Profile: p, Policy: f.policy, MinPulseSend: f.minpulseSend, MinPulseReceive: f.minpulseRcv,
		Payload: f.payload, Count: f.count, Gap: profile.Micros(f.gap), Random: f.poisson, Seed: f.seed,
		Bidirectional: f.bidirectional, Warmup: f.warmup}, nil
}

// Limits of what one command computes.
const (
	maxCount = 100_000
	maxGap   = 1e6
)
