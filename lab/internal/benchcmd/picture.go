package benchcmd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// pictureFlags are those of a command that draws what it measures.
type pictureFlags struct {
	SVG string `flag:"svg"`
	cmdtable.Force
}

func (f *pictureFlags) files() files { return files{f.Force.Force, map[string]string{"--svg": f.SVG}} }

// files has the names of the files that a measurement writes, by flag; an empty name stands for no file.
type files struct {
	force bool
	names map[string]string
}

// check refuses files that could not be written, before anything is measured.
func (f files) check() error {
	for flag, name := range f.names {
		if name == "" {
			continue
		}
		if err := outfile.Check(name, f.force); err != nil {
			return outfile.Explain(flag, err)
		}
	}
	return nil
}

// write writes each file whole or not at all.
func (f files) write(report any) (errs error) {
	for flag, name := range f.names {
		if name == "" {
			continue
		}
		b, err := report.(interface {
			draw(flag string) ([]byte, error)
		}).draw(flag)
		switch {
		case errors.Is(err, plot.ErrEmpty):
			err = fmt.Errorf("%s: %w; a curve takes two figures or more, as of two sizes", flag, err)
		case err == nil:
			err = outfile.Explain(flag, outfile.Write(name, 0o666, f.force, b))
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// point is one of a picture: a latency in us, or MB/s.
type point struct {
	series, says string
	latency      bool
	bytes        bench.Size
	y            bench.Figure
}

// picture draws latencies, and below bandwidths, against sizes, where there are two sizes or more. A series
// looks the same in both.
func picture(title string, e *bench.Environment, points []point) ([]byte, error) {
	var charts []plot.Chart
	for _, latency := range []bool{true, false} {
		// Wires and libraries differ by powers of ten.
		c := plot.Chart{Title: "Latency", Note: e.Processor + ", " + e.Go,
			X: plot.Axis{Label: "size of the message, bytes (logarithmic axis)", Log2: true, Bytes: true},
			Y: plot.Axis{Label: "latency, median (logarithmic axis)", Log10: true, Time: true}}
		scale := float64(time.Microsecond)
		if !latency {
			c.Title, c.Y, scale = "Bandwidth of a stream", plot.Axis{Label: "bandwidth, MB/s", Zero: true}, 1
		}
		most := 0
		for _, p := range points {
			i := slices.IndexFunc(c.Series, func(s plot.Series) bool { return s.Name == p.series })
			if i < 0 {
				i = len(c.Series)
				c.Series = append(c.Series, plot.Series{Name: p.series})
			}
			if s := &c.Series[i]; p.latency == latency {
				s.Says, s.Points = p.says, append(s.Points, plot.Point{X: float64(max(p.bytes, 1)), Y: scale * float64(p.y)})
				most = max(most, len(s.Points))
			}
		}
		if most > 1 {
			charts = append(charts, c)
		}
	}
	return plot.Stack(title, charts...)
}

// histograms are all latencies, tagged with what they are of, as an HdrHistogram log.
func (b *benchReport) histograms() ([]byte, error) {
	var out bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&out)
	err := errors.Join(w.OutputLogFormatVersion(), w.OutputComment("[latencies one way in nanoseconds]"), w.OutputLegend())
	now := time.Now().UnixMilli()
	for i := range b.Results {
		r := &b.Results[i]
		if r.merged == nil || err != nil {
			continue
		}
		r.merged.SetTag(fmt.Sprintf("%s-%s-%s-%s-%dvis-%dB", r.Test, r.Wire, r.Placement, r.Reliability, r.VIs, int(r.Bytes)))
		r.merged.SetStartTimeMs(now)
		r.merged.SetEndTimeMs(now)
		err = w.OutputIntervalHistogramWithLogOptions(r.merged, hdrhistogram.DefaultHistogramLogOptions())
	}
	return out.Bytes(), err
}
