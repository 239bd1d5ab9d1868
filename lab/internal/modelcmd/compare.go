package modelcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// ErrTooFar: a computed figure is further from the published one than was allowed.
var ErrTooFar = errors.New("computed figures are too far from the published ones")

// errNothing: a limit was given for errors that there are none of.
var errNothing = errors.New("nothing to hold against the limit")

type compareFlags struct {
	Published string  `flag:"published" help:"table of published figures, CSV (required)"`
	MaxError  float64 `flag:"max-error" range:"0..1000000000" help:"fail if a row of Table 1 is further off, in percent, or if there is none (default: no limit)"`
	MeanError float64 `flag:"mean-error" range:"0..1000000000" help:"fail if the mean over Table 1 is greater, in percent, or if it has no row (default: no limit)"`
	Given     cmdtable.Given
}

func (x *commands) compare(ctx context.Context, f *compareFlags, _ []string) error {
	rows, err := readRows(f.Published)
	if err != nil {
		return err
	}
	lines, err := published.Compare(published.NewModel(ctx, profile.Hosts.Load), rows)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Published, err)
	}
	c := comparison{lines, published.Summarise(lines, inTable1), published.Summarise(lines, everything)}
	if err := x.Report(c); err != nil {
		return err
	}
	return f.withinLimits(c.Table1)
}

// computations lists what a row can say to compute, for the help.
func computations() string {
	return "\n                  " + strings.Join(published.Computations(), "\n                  ")
}

// withinLimits holds the errors over Table 1 against those limits that were given.
func (f *compareFlags) withinLimits(s published.Summary) error {
	for _, l := range []struct {
		flag, what   string
		value, limit float64
	}{{"mean-error", "mean", 100 * s.Mean, f.MeanError}, {"max-error", "maximum, at " + s.Worst, 100 * s.Maximum, f.MaxError}} {
		switch {
		case !f.Given(l.flag):
			continue
		case s.Rows == 0:
			return fmt.Errorf("--%s %g: no row of CS-1997-20, Table 1 was computed: %w", l.flag, l.limit, errNothing)
		case l.value > l.limit:
			return fmt.Errorf("CS-1997-20, Table 1: %s: %.2f %%, the limit is %g %%: %w", l.what, l.value, l.limit, ErrTooFar)
		}
	}
	return nil
}

func readRows(file string) ([]published.Row, error) {
	return input("--published", file, published.Read)
}

func inTable1(l published.Line) bool { return ofTable1(l.Row) }

func ofTable1(r published.Row) bool { return strings.HasPrefix(r.Source, "CS-1997-20, Table 1") }

func everything(published.Line) bool { return true }

type comparison struct {
	Rows    []published.Line  `json:"rows"`
	Table1  published.Summary `json:"table1"`
	Overall published.Summary `json:"overall"`
}

// splits are the halves of cross-validation: which rows of Table 1 are fitted, while the others are predicted. Rows
// outside Table 1 stay in.
var splits = map[string]func(published.Row) bool{
	"latencies":         func(r published.Row) bool { return r.Compute != "stream bandwidth" },
	"bandwidths":        func(r published.Row) bool { return r.Compute == "stream bandwidth" },
	"store-and-forward": func(r published.Row) bool { return r.Policy == "store-and-forward" },
	"cut-through":       func(r published.Row) bool { return r.Policy != "store-and-forward" },
}

type fitResult struct {
	fit.Parameters
	Transfer  fit.Interface      `json:"transfer"`
	Fitted    published.Summary  `json:"fitted"`
	Predicted *published.Summary `json:"predicted,omitempty" help:"with --half"`
	Rows      []fittedRow        `json:"rows"`
}

// fittedRow is a row that says that it may be fitted to.
type fittedRow struct {
	published.Line
	Fitted bool `json:"fitted" help:"it took part"`
}

type fitFlags struct {
	Published string `flag:"published" help:"table of published figures, CSV (required)"`
	Half      string `flag:"half" help:"fit to one half of Table 1: {halves}"`
}

func fitted(f *fitFlags, ctx context.Context) (r fitResult, err error) {
	rows, err := readRows(f.Published)
	if err != nil {
		return r, err
	}
	use, err := half2use(f.Half)
	if err != nil {
		return r, err
	}
	if r.Parameters, err = fit.Fit(ctx, rows, use, fit.DefaultEffort); err != nil {
		return r, err
	}
	lines, err := published.Compare(published.NewModel(ctx, r.Loader()), rows)
	if err != nil {
		return r, err
	}
	if r.Transfer, err = fit.Transfer(ctx, rows); err != nil {
		return r, err
	}
	r.Fitted = published.Summarise(lines, func(l published.Line) bool { return l.Fit && use(l.Row) })
	if f.Half != "" {
		r.Predicted = new(published.Summarise(lines, func(l published.Line) bool { return inTable1(l) && !use(l.Row) }))
	}
	for _, l := range lines {
		if l.Counts && l.Fit {
			r.Rows = append(r.Rows, fittedRow{l, use(l.Row)})
		}
	}
	return r, nil
}

func halves() string { return strings.Join(slices.Sorted(maps.Keys(splits)), ", ") }

func half2use(half string) (func(published.Row) bool, error) {
	if half == "" {
		return func(published.Row) bool { return true }, nil
	}
	if of, ok := splits[half]; ok {
		return func(r published.Row) bool { return !ofTable1(r) || of(r) }, nil
	}
	return nil, usage("--half", half, halves())
}

// errUnlike: the model cut fewer frames as the live NIC did than were asked for.
var errUnlike = errors.New("the model cuts too few frames as the live NIC did")

type replayFlags struct {
	Log     string  `flag:"log" help:"DMA log of a live NIC (required)"`
	Profile string  `flag:"profile" help:"platform whose costs the model has, a name or a TOML file (default: costs by the log)"`
	Least   float64 `flag:"min-alike" range:"0..100" help:"percent of the frames that the model must cut as each live engine did"`
	Given   cmdtable.Given
}

func (x *commands) replay(ctx context.Context, f *replayFlags, _ []string) error {
	recorded, err := readLog(f.Log)
	if err != nil {
		return err
	}
	var p *profile.Profile
	if f.Given("profile") {
		if p, err = loadProfile("--profile", f.Profile); err != nil {
			return err
		}
	}
	engines, err := replay.Run(ctx, recorded, p)
	if err != nil {
		return fmt.Errorf("--log %s: %w", f.Log, err)
	}
	if err := x.Report(engines); err != nil {
		return err
	}
	for _, e := range engines {
		if e.Share < f.Least {
			return fmt.Errorf("%w: %s %d of %d, %.1f %%, at least %g %%", errUnlike, e.Engine, e.Alike, e.Frames, e.Share, f.Least)
		}
	}
	return nil
}

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
