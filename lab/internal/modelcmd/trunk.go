package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// trunkFlags describe senders that share a trunk.
type trunkFlags struct {
	profile             string
	payload, count      int
	gap, slow, watchdog float64
	senders, packet     int
}

func (f *trunkFlags) register(cmd *cobra.Command, count int) {
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", defaultProfile, "platform by name, or a TOML file")
	flags.IntVar(&f.payload, "payload", defaultPayload, "bytes of each payload")
	flags.IntVar(&f.count, "count", count, "payloads of each sender")
	flags.Float64Var(&f.gap, "gap-us", 0, "microseconds between a sender's postings (default: as fast as the host can)")
	flags.IntVar(&f.senders, "senders", 2, "hosts that send, each to one of its own")
	flags.Float64Var(&f.slow, "slow", 1, "the first sender's bus takes so many times as long for each byte")
	flags.IntVar(&f.packet, "packet", 0, "most bytes of a packet; the trunk is free between packets (default: a payload is one packet)")
	flags.Float64Var(&f.watchdog, "watchdog-us", 0, "end a payload whose sender holds the trunk and moves nothing for so many microseconds (default: never)")
}

// shared checks the flags and loads the profile.
func (f *trunkFlags) shared(flag string, policies ...string) (c report.Case, t virtual.Trunk, err error) {
	if err := cmp.Or(checkPolicies(flag, policies...), between("--payload", f.payload, 1, 1<<20, "bytes"), between("--count", f.count, 1, 100_000, ""),
		between("--gap-us", f.gap, 0, maxGap, ""), between("--senders", f.senders, 1, virtual.MaxSenders, ""),
		between("--slow", f.slow, 1, virtual.MaxSlow, "times"), between("--packet", f.packet, 0, pipeline.MaxFrame, "bytes"),
		between("--watchdog-us", f.watchdog, 0, maxGap, "")); err != nil {
		return c, t, err
	}
	p, err := loadProfile("--profile", f.profile)
	return report.Case{Profile: p, Payload: f.payload, Count: f.count, Gap: profile.Micros(f.gap), Warmup: -1},
		virtual.Trunk{Senders: f.senders, Slow: f.slow, Packet: f.packet, Watchdog: profile.Micros(f.watchdog)}, err
}

func trunkCommand(e *command.Env) *cobra.Command {
	var f trunkFlags
	var policies []string
	cmd := &cobra.Command{
		Use:   "trunk",
		Short: "Compute what senders that share a link between two switches do to each other",
		Long: `Has several hosts send streams, each to a host of its own, over one link between two
switches, in virtual time. The switches route by wormholes, as Myrinet does: a packet holds
the link from its first byte to its last, also while its sender has no bytes for it. Others
wait at their own NICs, where data gathers, and have the link in turn.

A sender that cuts through holds the link for as long as its bus takes (--slow). One that
waits leaves cut-through: its later transfers are longer. --packet delimits fragments, which
free the link one by one, and --watchdog-us takes it from a sender that stalls.

` + keys.Array(report.Shared{}),
		Example: `  trapeze-lab model trunk --senders 2 --slow 4
  trapeze-lab model trunk --policies eager --slow 8 --packet 1024 --json
  trapeze-lab model trunk --senders 4 --slow 100 --watchdog-us 50`,
		Args: cobra.NoArgs,
		RunE: command.Show(e, func(ctx context.Context) ([]report.Shared, error) {
			c, t, err := f.shared("--policies", policies...)
			if err != nil {
				return nil, err
			}
			return c.OnTrunk(ctx, policies, t)
		}, writeTrunk),
	}
	f.register(cmd, defaultCount)
	cmd.Flags().StringSliceVar(&policies, "policies", []string{"store-and-forward", "eager", "amp"}, "delivery policies")
	return cmd
}

func writeTrunk(w io.Writer, rows []report.Shared) error {
	const header = "policy\tsender\tlatency us\tlongest us\tMB/s\twaited us\theld us\theld idle us\tnetTx a frame\tcut through\tlost\t"
	return command.Table(w, tabwriter.AlignRight, header, rows, func(r report.Shared) string {
		return fmt.Sprintf("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t", r.Policy, r.Number, r.Latency.Microseconds(), r.Longest.Microseconds(),
			r.Bandwidth, r.Waited.Microseconds(), r.Held.Microseconds(), r.Idle.Microseconds(), r.Pulses, r.CutThrough, r.Lost)
	})
}

// trunkPicture draws who holds a trunk.
func trunkPicture(e *command.Env) *cobra.Command {
	var f trunkFlags
	var policy string
	cmd := picture(e, "trunk", "Senders that share a trunk: a band for hostTx and netTx of each, and one for who holds the trunk",
		"--policy eager --slow 4", func(ctx context.Context) ([]byte, error) {
			c, t, err := f.shared("--policy", policy)
			if err != nil {
				return nil, err
			}
			c.Policy = policy
			return c.TrunkGraph(ctx, t)
		})
	f.register(cmd, 4)
	cmd.Flags().StringVar(&policy, "policy", defaultPolicy, "delivery policy")
	return cmd
}
