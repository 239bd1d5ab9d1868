package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// maxCases bounds a sweep.
const maxCases = 100_000

type sweepFlags struct {
	Profiles      []string  `flag:"profiles" split:"comma" default:"p6-natoma" help:"platforms, names or TOML files"`
	Policies      []string  `flag:"policies" split:"comma" default:"amp" help:"delivery policies"`
	Payloads      []int     `flag:"payloads" default:"8192" range:"1..16777216" help:"payload sizes in bytes"`
	Thresholds    []int     `flag:"thresholds" default:"0" range:"0.." help:"thresholds or pulses in bytes, 0 = default"`
	Sides         string    `flag:"sides" default:"both" oneof:"both,send,recv" help:"which side the thresholds are for: both, send or recv"`
	Gaps          []float64 `flag:"gaps-us" default:"0" range:"0..1000000" help:"microseconds between postings, 0 to 1000000; 0 = as fast as the host can"`
	Counts        []int     `flag:"counts" default:"100" range:"1..100000" help:"payloads of the stream"`
	Poisson       bool      `flag:"poisson" help:"make the gaps exponential"`
	Bidirectional bool      `flag:"bidirectional" help:"both hosts send a stream"`
	Seed          uint64    `flag:"seed" default:"1" help:"seed of the random gaps"`
	Given         cmdtable.Given
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

// check refuses values that are out of range.
func (f *sweepFlags) check() error {
	if f.Poisson && !f.Given("gaps-us") {
		return usage("--poisson", "true", "together with --gaps-us, the means of the gaps")
	}
	n := len(f.Profiles) * len(f.Policies) * len(f.Payloads) * len(f.Thresholds) * len(f.Gaps) * len(f.Counts)
	if n < 1 || n > maxCases {
		return usage("the lists make", fmt.Sprint(n, " combinations"), fmt.Sprintf("1 to %d", maxCases))
	}
	errs := []error{checkPolicies("--policies", f.Policies...)}
	largest := pipeline.MaxFrame
	if slices.Contains(f.Policies, "optimal") {
		largest = search.MaxPayload
	}
	for _, payload := range f.Payloads {
		errs = append(errs, between("--payloads", payload, 1, largest, "bytes"))
		for _, threshold := range f.Thresholds {
			errs = append(errs, between("--thresholds", threshold, 0, payload, "bytes, the payload; 0 = default"))
		}
	}
	return cmp.Or(errs...)
}

// cases lists the combinations, those of the first profile first.
func (f *sweepFlags) cases() ([]report.Case, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	profiles, err := loadProfiles("--profiles", f.Profiles)
	if err != nil {
		return nil, err
	}
	cases := make([]report.Case, len(profiles)*len(f.Policies)*len(f.Payloads)*len(f.Thresholds)*len(f.Gaps)*len(f.Counts))
	for i := range cases {
		of := i
		next := func(length int) (k int) {
			k, of = of%length, of/length
			return k
		}
		c := report.Case{Random: f.Poisson, Seed: f.Seed, Bidirectional: f.Bidirectional, Warmup: -1}
		c.Count, c.Gap = f.Counts[next(len(f.Counts))], profile.Micros(f.Gaps[next(len(f.Gaps))])
		threshold := f.Thresholds[next(len(f.Thresholds))]
		if f.Sides != "recv" {
			c.MinPulseSend = threshold
		}
		if f.Sides != "send" {
			c.MinPulseReceive = threshold
		}
		c.Payload, c.Policy, c.Profile = f.Payloads[next(len(f.Payloads))], f.Policies[next(len(f.Policies))], profiles[of]
		cases[i] = c
	}
	return cases, nil
}

func (x *commands) sweep(cases []report.Case, ctx context.Context) ([]sweepRow, error) {
	meter := x.Steps("measuring", len(cases))
	defer meter.Stop()
	rows := make([]sweepRow, 0, len(cases))
	for _, c := range cases {
		m, err := c.Measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s, %s, %d bytes: %w", c.Profile.Name, c.Policy, c.Payload, err)
		}
		rows = append(rows, sweepRow{c.Profile.Name, c.Policy, c.Payload, c.MinPulseSend, c.MinPulseReceive, c.Gap, c.Count, m.Latency, m.Mean, m.Bandwidth, m.Busy})
		meter.Add(1)
	}
	return rows, nil
}
