package modelcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// maxCases bounds a sweep.
const maxCases = 100_000

type sweepFlags struct {
	profiles, policies          []string
	payloads, thresholds, count []int
	gaps                        []float64
	sides                       string
	poisson, bidirectional      bool
	seed                        uint64
}

// sweepRow is one measured combination.
type sweepRow struct {
	Profile   string       `json:"profile"`
	Policy    string       `json:"policy"`
	Payload   int          `json:"payload"`
	Send      int          `json:"minpulse_send"`
	Receive   int          `json:"minpulse_recv"`
	Gap       profile.Time `json:"gap_us"`
	Count     int          `json:"count"`
	Latency   profile.Time `json:"latency_us"`
	Mean      profile.Time `json:"mean_latency_us"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
	Busy      profile.Time `json:"bus_busy_us"`
}

func sweepCommand(e *command.Env) *cobra.Command {
	var f sweepFlags
	var output outputFile
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Measure every combination of profiles, policies, payloads, thresholds and loads",
		Long: `Measures every combination of the given lists in virtual time. A threshold of 0 is
the policy's default. Columns: latency_us of a lone payload on an idle system;
mean_latency_us, bandwidth_mb_s and bus_busy_us of the stream.

` + keys.Array(sweepRow{}) + `
With --output the file has them, and stdout ` + keys.List(written{}) + `.`,
		Example: `  trapeze-lab model sweep --policies eager,static --thresholds 64,128,256,512,1024,2048
  trapeze-lab model sweep --profiles p6-natoma,pcie4-x16-100g --policies auto,amp --payloads 1024,8192,65536 --json
  trapeze-lab model sweep --policies amp,store-and-forward --gaps-us 0,75,100,150,300 --poisson`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("output") {
				if err := output.check(); err != nil {
					return err
				}
			}
			if f.poisson && !cmd.Flags().Changed("gaps-us") {
				return usage("--poisson", "true", "together with --gaps-us, the means of the gaps")
			}
			rows, err := f.measure(cmd.Context(), e)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if e.JSON {
				err = command.WriteJSON(&b, rows)
			} else {
				err = writeSweep(&b, rows)
			}
			if err != nil {
				return err
			}
			if output.name != "" {
				return output.write(e, b.Bytes())
			}
			_, err = cmd.OutOrStdout().Write(b.Bytes())
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.profiles, "profiles", []string{defaultProfile}, "platforms, names or TOML files")
	flags.StringSliceVar(&f.policies, "policies", []string{defaultPolicy}, "delivery policies")
	flags.IntSliceVar(&f.payloads, "payloads", []int{defaultPayload}, "payload sizes in bytes")
	flags.IntSliceVar(&f.thresholds, "thresholds", []int{0}, "thresholds or pulses in bytes, 0 = default")
	flags.StringVar(&f.sides, "sides", "both", "which side the thresholds are for: both, send or recv")
	flags.Float64SliceVar(&f.gaps, "gaps-us", []float64{0}, "microseconds between postings, 0 = as fast as the host can")
	flags.IntSliceVar(&f.count, "counts", []int{defaultCount}, "payloads of the stream")
	flags.BoolVar(&f.poisson, "poisson", false, "make the gaps exponential")
	flags.BoolVar(&f.bidirectional, "bidirectional", false, "both hosts send a stream")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the random gaps")
	output.register(cmd, "write to a file instead, whole or not at all")
	return cmd
}

// check refuses values that are out of range.
func (f *sweepFlags) check() error {
	if f.sides != "both" && f.sides != "send" && f.sides != "recv" {
		return usage("--sides", f.sides, "both, send or recv")
	}
	n := len(f.profiles) * len(f.policies) * len(f.payloads) * len(f.thresholds) * len(f.gaps) * len(f.count)
	if n < 1 || n > maxCases {
		return usage("the lists make", fmt.Sprint(n, " combinations"), fmt.Sprintf("1 to %d", maxCases))
	}
	errs := []error{checkPolicies("--policies", f.policies...)}
	largest := pipeline.MaxFrame
	if slices.Contains(f.policies, "optimal") {
		largest = search.MaxPayload
	}
	for _, payload := range f.payloads {
		errs = append(errs, between("--payloads", payload, 1, largest, "bytes"))
		for _, threshold := range f.thresholds {
			errs = append(errs, between("--thresholds", threshold, 0, payload, "bytes, the payload; 0 = default"))
		}
	}
	for _, count := range f.count {
		errs = append(errs, between("--counts", count, 1, maxCount, ""))
	}
	for _, gap := range f.gaps {
		errs = append(errs, between("--gaps-us", gap, 0, maxGap, ""))
	}
	return cmp.Or(errs...)
}

// cases lists the combinations.
func (f *sweepFlags) cases() ([]report.Case, error) {
	profiles, err := loadProfiles("--profiles", f.profiles)
	if err != nil {
		return nil, err
	}
	var cases []report.Case
	for _, p := range profiles {
		for _, policy := range f.policies {
			for _, payload := range f.payloads {
				for _, threshold := range f.thresholds {
					for _, gap := range f.gaps {
						for _, count := range f.count {
							c := report.Case{Profile: p, Policy: policy, Payload: payload, Count: count, Gap: profile.Micros(gap),
								Random: f.poisson, Seed: f.seed, Bidirectional: f.bidirectional, Warmup: -1}
							if f.sides != "recv" {
								c.MinPulseSend = threshold
							}
							if f.sides != "send" {
								c.MinPulseReceive = threshold
							}
							cases = append(cases, c)
						}
					}
				}
			}
		}
	}
	return cases, nil
}

func (f *sweepFlags) measure(ctx context.Context, e *command.Env) ([]sweepRow, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	cases, err := f.cases()
	if err != nil {
		return nil, err
	}
	meter := e.Steps("measuring", len(cases))
	defer meter.Stop()
	rows := make([]sweepRow, 0, len(cases))
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := c.Measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s, %s, %d bytes: %w", c.Profile.Name, c.Policy, c.Payload, err)
		}
		rows = append(rows, sweepRow{c.Profile.Name, c.Policy, c.Payload, c.MinPulseSend, c.MinPulseReceive, c.Gap, c.Count, m.Latency, m.Mean, m.Bandwidth, m.Busy})
		meter.Add(1)
	}
	return rows, nil
}

func writeSweep(w io.Writer, rows []sweepRow) error {
	const header = "profile\tpolicy\tpayload\tminpulse-send\tminpulse-recv\tgap us\tcount\tlatency us\tmean us\tMB/s\tbus busy us\t"
	return command.Table(w, tabwriter.AlignRight, header, rows, func(r sweepRow) string {
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%g\t%d\t%.3f\t%.3f\t%.2f\t%.2f\t", r.Profile, r.Policy, r.Payload, r.Send, r.Receive, r.Gap.Microseconds(), r.Count,
			r.Latency.Microseconds(), r.Mean.Microseconds(), r.Bandwidth, r.Busy.Microseconds())
	})
}
