package benchcmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// benchReport holds what bench --json prints.
type benchReport struct {
	conditions
	Results []result `json:"results"`
}

// result is one measurement, repeated.
type result struct {
	Test        string      `json:"test"`
	Wire        string      `json:"wire"`
	Placement   string      `json:"placement"`
	Reliability string      `json:"reliability"`
	VIs         int         `json:"vis"`
	Bytes       int         `json:"bytes"`
	Repetitions int         `json:"repetitions"`
	P50         *float64    `json:"p50_us,omitempty"`
	P50Spread   *[2]float64 `json:"p50_spread_us,omitempty"`
	P99         *float64    `json:"p99_us,omitempty"`
	P999        *float64    `json:"p999_us,omitempty"`
	Max         *float64    `json:"max_us,omitempty"`
	Rate        float64     `json:"mb_per_s"`
	RateSpread  [2]float64  `json:"mb_per_s_spread"`
	Messages    float64     `json:"messages_per_s"`
	CPU         float64     `json:"cpu_ns_per_message"`
	Cycles      *float64    `json:"cycles_per_message" help:"null where the machine does not count them"`
	Mallocs     float64     `json:"mallocs_per_message"`
	Collections float64     `json:"collections"`
	// Switches a second by which both processes were taken off their cores.
	Switches float64 `json:"involuntary_switches_per_s" help:"how often both processes were taken off their cores"`
	merged   *hdrhistogram.Histogram
}

// summarize makes medians of repetitions.
func summarize(t *bench.Task, runs []bench.Result) result {
	r := result{Test: string(t.Spec.Test), Wire: t.Wire, Placement: t.Placement, Reliability: t.Spec.Reliability,
		VIs: t.Spec.VIs, Bytes: t.Spec.Bytes, Repetitions: len(runs)}
	if r.Placement == "" {
		r.Placement = "default"
	}
	of := func(f func(s *bench.Result) float64) (float64, [2]float64) {
		values := make([]float64, 0, len(runs))
		for i := range runs {
			values = append(values, f(&runs[i]))
		}
		return bench.Median(values)
	}
	r.Rate, r.RateSpread = of(func(x *bench.Result) float64 { return x.Stream().MBPerSecond() })
	r.Messages, _ = of(func(x *bench.Result) float64 { return x.Stream().MessageRate() })
	each := func(f func(s *bench.Side) float64) float64 {
		v, _ := of(func(x *bench.Result) float64 {
			return (f(&x.Source) + f(&x.Echo)) / max(float64(x.Stream().Messages), 1)
		})
		return v
	}
	r.CPU = each(func(s *bench.Side) float64 { return float64(s.CPU) })
	r.Mallocs = each(func(s *bench.Side) float64 { return float64(s.Mallocs) })
	r.Collections, _ = of(func(x *bench.Result) float64 { return float64(x.Source.Collections + x.Echo.Collections) })
	r.Switches, _ = of((*bench.Result).SwitchRate)
	if c := each(func(s *bench.Side) float64 { return float64(s.Cycles) }); c > 0 {
		r.Cycles = &c
	}
	if t.Spec.Test == bench.Bandwidth {
		return r
	}
	percentile := func(p float64) (*float64, *[2]float64) {
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

// quiet is the number of involuntary context switches a second of two processes on cores of their
// own: the kernel's own threads make some.
const quiet = 100

// disturbed says below a table if other programs ran on the cores.
func disturbed(out io.Writer, switches float64) error {
	if switches <= quiet {
		return nil
	}
	_, err := fmt.Fprintf(out, "Disturbed: other programs took the cores %.0f times a second; latencies and rates are not those of a quiet machine.\n", switches)
	return err
}

// size as people write it.
func size(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// table prints what was measured.
func (b *benchReport) table(out io.Writer) error {
	const header = "test\twire\tengine\tlevel\tVIs\tsize\tp50 us\tp99 us\tp99.9 us\tmax us\tMB/s\tmessages/s\tCPU ns\tcycles\tmallocs\t"
	worst := 0.0
	err := command.Table(out, tabwriter.AlignRight, header, b.Results, func(r result) string {
		worst = max(worst, r.Switches)
		us := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return fmt.Sprintf("%.2f", *v)
		}
		cycles := "-"
		if r.Cycles != nil {
			cycles = fmt.Sprintf("%.0f", *r.Cycles)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.0f\t%.0f\t%s\t%.3f\t", r.Test, r.Wire, r.Placement, r.Reliability, r.VIs, size(r.Bytes),
			us(r.P50), us(r.P99), us(r.P999), us(r.Max), r.Rate, r.Messages, r.CPU, cycles, r.Mallocs)
	})
	if err != nil {
		return err
	}
	return disturbed(out, worst)
}

// writeFiles writes the picture and the histograms that were asked for.
func (b *benchReport) writeFiles(f *benchFlags) error {
	if f.SVG != "" {
		chart := b.chart()
		if err := draw("--svg", f.SVG, f.Force.Force, chart.SVG); err != nil {
			return err
		}
	}
	if f.HDR != "" {
		return write("--hdr", f.HDR, f.Force.Force, b.histograms)
	}
	return nil
}

// checkFile refuses the file of a flag that could not be written, before anything is
// measured.
func checkFile(flag, path string, force bool) error {
	if path == "" {
		return nil
	}
	return outfile.Explain(flag, outfile.Check(path, force))
}

// draw writes a picture to the file of a flag.
func draw(flag, path string, force bool, picture func() ([]byte, error)) error {
	b, err := picture()
	if errors.Is(err, plot.ErrEmpty) {
		err = fmt.Errorf("%s: %w; a curve takes two figures or more, as of two sizes", flag, err)
	}
	if err != nil {
		return err
	}
	return write(flag, path, force, func(w io.Writer) error { _, err := w.Write(b); return err })
}

// write writes the file of a flag whole or not at all.
func write(flag, path string, force bool, fill func(io.Writer) error) error {
	file, err := outfile.Create(path, 0o666, force)
	if err != nil {
		return outfile.Explain(flag, err)
	}
	defer file.Discard()
	if err := fill(file); err != nil {
		return err
	}
	return outfile.Explain(flag, file.Commit())
}

// histograms writes all latencies, tagged with what they are of.
func (b *benchReport) histograms(out io.Writer) error {
	w := hdrhistogram.NewHistogramLogWriter(out)
	if err := w.OutputLogFormatVersion(); err != nil {
		return err
	}
	if err := w.OutputComment("[latencies one way in nanoseconds]"); err != nil {
		return err
	}
	if err := w.OutputLegend(); err != nil {
		return err
	}
	o := hdrhistogram.DefaultHistogramLogOptions()
	now := time.Now()
	for i := range b.Results {
		r := &b.Results[i]
		if r.merged == nil {
			continue
		}
		r.merged.SetTag(fmt.Sprintf("%s-%s-%s-%s-%dvis-%dB", r.Test, r.Wire, r.Placement, r.Reliability, r.VIs, r.Bytes))
		r.merged.SetStartTimeMs(now.UnixMilli())
		r.merged.SetEndTimeMs(now.UnixMilli())
		if err := w.OutputIntervalHistogramWithLogOptions(r.merged, o); err != nil {
			return err
		}
	}
	return nil
}

// seriesOf names the curve that a result is a point of: its wire, and whatever else
// the results differ in that are drawn.
func seriesOf(drawn []result, r result) string {
	name := r.Wire
	for _, part := range []func(result) string{
		func(r result) string { return r.Test },
		func(r result) string { return r.Placement },
		func(r result) string { return r.Reliability },
		func(r result) string { return fmt.Sprintf("%d VIs", r.VIs) },
	} {
		if slices.ContainsFunc(drawn, func(other result) bool { return part(other) != part(r) }) {
			name += ", " + part(r)
		}
	}
	return name
}

// latencyChart is a picture of latencies in nanoseconds against sizes, to be filled.
// Wires and libraries differ by powers of ten.
func latencyChart(e *bench.Environment) plot.Chart {
	return plot.Chart{Title: "One-way latency", Note: e.Processor + ", " + e.Go,
		X: plot.Axis{Label: "size of the message, bytes (logarithmic axis)", Log2: true, Bytes: true},
		Y: plot.Axis{Label: "one-way latency, median (logarithmic axis)", Log10: true, Time: true}}
}

// rateChart is the same for MB/s of a stream.
func rateChart(e *bench.Environment) plot.Chart {
	c := latencyChart(e)
	c.Title, c.Y = "Bandwidth of a stream", plot.Axis{Label: "bandwidth, MB/s", Zero: true}
	return c
}

// chart draws latency against size, or bandwidth if no latency was measured: a
// curve for each combination of the rest.
func (b *benchReport) chart() plot.Chart {
	c := latencyChart(&b.Environment)
	drawn := slices.DeleteFunc(slices.Clone(b.Results), func(r result) bool { return r.P50 == nil })
	if len(drawn) == 0 {
		drawn, c = b.Results, rateChart(&b.Environment)
	}
	for _, r := range drawn {
		y := r.Rate
		if r.P50 != nil {
			y = *r.P50 * 1e3
		}
		if r.Test == string(bench.Get) {
			c.Title = "Latency, of reads there and back"
		}
		addPoint(&c, seriesOf(drawn, r), r.Bytes, y)
	}
	return c
}

// addPoint adds a point to a curve, which is made if there is none of that name.
func addPoint(c *plot.Chart, name string, bytes int, y float64) {
	i := slices.IndexFunc(c.Series, func(s plot.Series) bool { return s.Name == name })
	if i < 0 {
		i = len(c.Series)
		c.Series = append(c.Series, plot.Series{Name: name})
	}
	c.Series[i].Points = append(c.Series[i].Points, plot.Point{X: float64(max(bytes, 1)), Y: y})
}
