package modelcmd

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

const maxGoals = 10_000

type goalFlags struct {
	Profiles []string `flag:"profiles" split:"comma" default:"{all-profiles}" help:"platforms, names or TOML files"`
	Payloads []int    `flag:"payloads" default:"{goal-payloads}" range:"1..1048576" help:"payload sizes in bytes"`
	Variants int      `flag:"variants" range:"0..1000" help:"random variants of each profile"`
	Changes  bool     `flag:"changes" help:"change an engine's costs in the middle of the run"`
}

// platforms loads the profiles, each followed by its variants.
func (f *goalFlags) platforms() ([]*profile.Profile, error) {
	if n := len(f.Profiles) * len(f.Payloads) * (f.Variants + 1); n < 1 || n > maxGoals {
		return nil, usage("the lists make", fmt.Sprint(n, " cases"), fmt.Sprintf("1 to %d", maxGoals))
	}
	loaded, err := loadProfiles("--profiles", f.Profiles)
	if err != nil {
		return nil, err
	}
	var all []*profile.Profile
	for _, p := range loaded {
		all = append(all, p)
		for seed := range f.Variants {
			all = append(all, report.Varied(p, uint64(seed)))
		}
	}
	return all, nil
}

func (x *commands) goals(f *goalFlags, ctx context.Context) (r held, err error) {
	platforms, err := f.platforms()
	if err != nil {
		return r, err
	}
	meter := x.Steps("measuring", len(platforms)*len(f.Payloads))
	defer meter.Stop()
	for _, p := range platforms {
		for _, payload := range f.Payloads {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			goals, err := f.goalsOf(ctx, p, payload)
			if err != nil {
				return r, fmt.Errorf("%s, %d bytes: %w", p.Name, payload, err)
			}
			r.Goals = append(r.Goals, goals...)
			meter.Add(1)
		}
	}
	r.sum()
	return r, nil
}

func (f *goalFlags) goalsOf(ctx context.Context, p *profile.Profile, payload int) ([]report.Goal, error) {
	if f.Changes {
		return report.Changes(ctx, p, payload)
	}
	g, err := report.Against(ctx, p, payload)
	if err != nil {
		return nil, err
	}
	return []report.Goal{*g}, nil
}

type held struct {
	Cases    int           `json:"cases"`
	Within3  int           `json:"within_3_percent"`
	Within1  int           `json:"within_1_percent"`
	Half     int           `json:"within_half_us" help:"of those within 1 percent"`
	Mean     float64       `json:"mean_gap_percent"`
	Greatest float64       `json:"greatest_gap_percent"`
	Stream   float64       `json:"least_stream_over_store_and_forward" help:"0 with --changes"`
	Bus      float64       `json:"greatest_bus_over_amp" help:"0 with --changes"`
	Goals    []report.Goal `json:"goals"`
}

func (r *held) sum() {
	r.Cases, r.Stream = len(r.Goals), r.Goals[0].Stream
	for _, g := range r.Goals {
		r.Mean += g.Gap / float64(r.Cases)
		r.Greatest, r.Stream, r.Bus = max(r.Greatest, g.Gap), min(r.Stream, g.Stream), max(r.Bus, g.Bus)
		if g.Gap <= 3 {
			r.Within3++
		}
		if g.Gap <= 1 {
			r.Within1++
			if g.Auto-g.Best <= profile.Micros(0.5) {
				r.Half++
			}
		}
	}
}
