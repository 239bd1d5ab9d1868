package benchcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

type benchFlags struct {
	Tests        []string       `flag:"tests" split:"comma" default:"latency,bandwidth" help:"{tests}"`
	Wires        []string       `flag:"wires" split:"comma" default:"shm" help:"{wires}"`
	Placements   []string       `flag:"placements" split:"comma" default:"default" oneof:"default,inline,thread" help:"default (the wire's), inline, thread"`
	Levels       []string       `flag:"reliability" split:"comma" default:"reliable-delivery" oneof:"unreliable,reliable-delivery,reliable-reception" help:"unreliable, reliable-delivery, reliable-reception"`
	Sizes        []option.Bytes `flag:"sizes" default:"64,4K,8K,64K" range:"0..1G" help:"bytes of a message; K and M are powers of two"`
	VIs          []int          `flag:"vis" default:"1" range:"1..8192" help:"numbers of VIs that take turns"`
	Window       int            `flag:"window" range:"0..4096" help:"messages under way on each VI; 0: 4 in round trips, 1 in reads, in streams 8 to 512 that fit 512 KiB"`
	Duration     time.Duration  `flag:"duration" default:"1s" range:"1ms..1h" help:"how long to measure each time, after a tenth of that to warm up"`
	Repeat       int            `flag:"repeat" default:"3" range:"1..1000" help:"how often"`
	Cores        string         `flag:"cores" default:"auto" help:"cores of the two processes, as in 0,1; {auto}; {none}"`
	Eager        bool           `flag:"eager" help:"have the NICs hold messages and descriptors before they are posted"`
	Garbage      int            `flag:"garbage" range:"0..100000" help:"MB that another goroutine of each process allocates a second"`
	HDR          string         `flag:"hdr" help:"file for all latencies, as an HdrHistogram log"`
	Profiles     string         `flag:"cpu-profile" help:"folder for CPU profiles of the two processes, a file for each measurement"`
	pictureFlags `override:"svg" help:"file for a picture: latencies and bandwidths against size"`
	tasks        []bench.Task
}

func (f *benchFlags) files() files {
	return files{f.Force.Force, map[string]string{"--svg": f.SVG, "--hdr": f.HDR}}
}

// Steps is the number of runs.
func (f *benchFlags) Steps() int { return len(f.tasks) * f.Repeat }

// combinations calls f with one value of each list, for all combinations; the last list's change first.
func combinations(lists [][]string, f func(values []string) error, values ...string) error {
	if len(lists) == 0 {
		return f(values)
	}
	for _, v := range lists[0] {
		if err := combinations(lists[1:], f, append(values, v)...); err != nil {
			return err
		}
	}
	return nil
}

// Validate makes the tasks.
func (f *benchFlags) Validate() error {
	cores, err := coresOf(f.Cores)
	if err != nil {
		return err
	}
	return combinations([][]string{f.Tests, f.Wires, f.Placements, f.Levels}, func(v []string) error {
		for _, vis := range f.VIs {
			for _, size := range f.Sizes {
				t := bench.NewTask(bench.Test(v[0]), v[1], int(size), f.Duration, cores)
				t.Placement, t.Reliability, t.VIs, t.Eager, t.Garbage, t.Profiles = v[2], v[3], vis, f.Eager, int64(f.Garbage)*1e6, f.Profiles
				if f.Window != 0 {
					t.Window = f.Window
				}
				if err := t.Validate(); err != nil {
					return err
				}
				f.tasks = append(f.tasks, t)
			}
		}
		return nil
	})
}

func measureMessages(ctx context.Context, f *benchFlags, r *benchReport, step func()) (bool, error) {
	if f.Profiles != "" {
		if err := os.MkdirAll(f.Profiles, 0o777); err != nil {
			return false, err
		}
	}
	for _, t := range f.tasks {
		var runs []bench.Result
		var err error
		for len(runs) < f.Repeat && err == nil {
			var found bench.Result
			if found, err = bench.Run(ctx, t); err == nil {
				runs = append(runs, found)
				step()
			}
		}
		if len(runs) > 0 {
			r.Results = append(r.Results, summarize(&t, runs))
		}
		if err != nil {
			return len(r.Results) > 0, err
		}
	}
	return true, nil
}

type benchReport struct {
	conditions
	Results []result `json:"results"`
}

// result is one measurement, repeated: medians of the repetitions.
type result struct {
	Test        string        `json:"test"`
	Wire        string        `json:"wire"`
	Placement   string        `json:"placement"`
	Reliability string        `json:"reliability"`
	VIs         int           `json:"vis"`
	Bytes       bench.Size    `json:"bytes"`
	Repetitions int           `json:"repetitions" text:"-"`
	P50         *bench.Figure `json:"p50_us,omitempty"`
	P50Spread   *bench.Spread `json:"p50_spread_us,omitempty" text:"-"`
	P99         *bench.Figure `json:"p99_us,omitempty"`
	P999        *bench.Figure `json:"p999_us,omitempty"`
	Max         *bench.Figure `json:"max_us,omitempty"`
	Rate        bench.Figure  `json:"mb_per_s"`
	RateSpread  bench.Spread  `json:"mb_per_s_spread" text:"-"`
	Messages    bench.Figure  `json:"messages_per_s"`
	CPU         bench.Figure  `json:"cpu_ns_per_message"`
	Mallocs     bench.Figure  `json:"mallocs_per_message"`
	Collections bench.Figure  `json:"collections" text:"-"`
	// Switches a second by which both processes were taken off their cores.
	Switches bench.Figure `json:"involuntary_switches_per_s" text:"-" help:"how often both processes were taken off their cores"`
	merged   *hdrhistogram.Histogram
}

func summarize(t *bench.Task, runs []bench.Result) result {
	r := result{Test: string(t.Test), Wire: t.Wire, Placement: t.Placement, Reliability: t.Reliability,
		VIs: t.VIs, Bytes: bench.Size(t.Bytes), Repetitions: len(runs)}
	of := func(f func(x *bench.Result) float64) (bench.Figure, bench.Spread) {
		values := make([]float64, 0, len(runs))
		for i := range runs {
			values = append(values, f(&runs[i]))
		}
		return bench.Median(values)
	}
	each := func(f func(s *bench.Side) float64) bench.Figure {
		v, _ := of(func(x *bench.Result) float64 {
			return (f(&x.Source) + f(&x.Echo)) / max(float64(x.Counted().Messages), 1)
		})
		return v
	}
	r.Rate, r.RateSpread = of(func(x *bench.Result) float64 { return x.Counted().MBPerSecond() })
	r.Messages, _ = of(func(x *bench.Result) float64 { return x.Counted().MessageRate() })
	r.CPU = each(func(s *bench.Side) float64 { return float64(s.CPU) })
	r.Mallocs = each(func(s *bench.Side) float64 { return float64(s.Mallocs) })
	r.Collections, _ = of(func(x *bench.Result) float64 { return float64(x.Source.Collections + x.Echo.Collections) })
	r.Switches, _ = of((*bench.Result).SwitchRate)
	if runs[0].Source.Latencies == nil {
		return r
	}
	percentile := func(p float64) (*bench.Figure, *bench.Spread) {
		v, spread := of(func(x *bench.Result) float64 { return x.Source.Percentile(p) })
		return &v, &spread
	}
	r.P50, r.P50Spread = percentile(50)
	r.P99, _ = percentile(99)
	r.P999, _ = percentile(99.9)
	r.Max, _ = percentile(100)
	r.merged = runs[0].Source.Latencies.Histogram
	for i := range runs[1:] {
		r.merged.Merge(runs[i+1].Source.Latencies.Histogram)
	}
	return r
}

// Table prints what was measured.
func (b *benchReport) Table(out io.Writer) error {
	err := command.Text(out, b.Results)
	var worst bench.Figure
	for _, r := range b.Results {
		worst = max(worst, r.Switches)
	}
	disturbed(out, worst)
	return err
}

// draw makes the log of latencies, or a picture with a curve for each combination of what the results differ in
// beside their sizes.
func (b *benchReport) draw(flag string) ([]byte, error) {
	if flag == "--hdr" {
		return b.histograms()
	}
	var points []point
	for _, r := range b.Results {
		p := point{series: r.Wire, bytes: r.Bytes, y: r.Rate, latency: r.P50 != nil}
		if p.latency {
			p.y = *r.P50
		}
		for _, part := range []func(result) string{
			func(r result) string { return r.Test },
			func(r result) string { return r.Placement },
			func(r result) string { return r.Reliability },
			func(r result) string { return fmt.Sprintf("%d VIs", r.VIs) },
		} {
			if slices.ContainsFunc(b.Results, func(other result) bool { return part(other) != part(r) }) {
				p.series += ", " + part(r)
			}
		}
		points = append(points, p)
	}
	return picture("Messages", &b.Environment, points)
}
