package benchcmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

type compareFlags struct {
	bench.Comparison
	Cores        string `flag:"cores" default:"auto" help:"cores of the two processes, as in 0,1; {auto-pairs}"`
	Markdown     bool   `flag:"markdown" help:"print a table of GitHub Markdown, with commit, machine and date below it"`
	pictureFlags `override:"svg" help:"file for a picture: our latency and bandwidth and those of the peers, against size"`
}

// Validate finds the pairs of cores, and checks all.
func (f *compareFlags) Validate() (err error) {
	if f.Pairs, err = pairsOf(f.Cores); err != nil {
		return err
	}
	return f.Comparison.Validate()
}

func (e env) compare(ctx context.Context, f *compareFlags, r *compareReport, step func()) (_ bool, err error) {
	r.markdown = f.Markdown
	r.Missing = map[string]string{}
	for _, p := range bench.Peers() {
		if err := p.Available(); err != nil && slices.Contains(f.Peers, p.Name) {
			r.Missing[p.Name] = err.Error()
			fmt.Fprintf(e.Stderr, "trapeze-lab: %v; going on without it\n", err)
		}
	}
	r.Rows, err = f.Compare(ctx, step)
	return len(r.Rows) > 0, err
}

type compareReport struct {
	Rows []bench.Row `json:"rows"`
	conditions
	// Missing are the peers that are not installed, with what to install.
	Missing map[string]string `json:"missing,omitempty"`
}

// Table prints who was how fast.
func (r *compareReport) Table(out io.Writer) error {
	err := r.writeRows(out)
	var worst bench.Figure
	for _, row := range r.Rows {
		worst = max(worst, row.Switches)
		if row.Failure != "" {
			fmt.Fprintf(out, "%s, %v: %s: %s\n", row.Test, row.Bytes, row.Who, row.Failure)
		}
		if row.Unsteady > 0 && row.Who == bench.Us {
			fmt.Fprintf(out, "%s, %v: in %d rounds the cores moved: they are left out, unless there are no others.\n",
				row.Test, row.Bytes, row.Unsteady)
		}
	}
	disturbed(out, worst)
	return err
}

// writeRows prints a line for each row, or in Markdown for each peer, beside ours; there, ratios in which we win are bold.
func (r *compareReport) writeRows(out io.Writer) error {
	if !r.markdown {
		return command.Text(out, r.Rows)
	}
	text := "| Test | Size | Crossing | Ours | Peer | Peer's | Ratio | p99.9's ratio |\n|---|---|---|---|---|---|---|---|\n"
	ours := ""
	for i, row := range r.Rows {
		value, who, ratio := "-", row.Who, command.Word(row.Ratio)
		if row.Value != nil {
			value = strings.TrimSpace(fmt.Sprintf("%v %s %s", *row.Value, row.Unit, row.Statistic))
		}
		if who == bench.Us {
			ours = value
			if i+1 < len(r.Rows) && r.Rows[i+1].Who != bench.Us {
				continue
			}
			who, value = "-", "-" // no peer answers this
		}
		if row.Ratio != nil && *row.Ratio != 1 && (*row.Ratio < 1) == (row.Unit == "us") {
			ratio = "**" + ratio + "**"
		}
		crossing := strings.TrimSuffix(fmt.Sprintf("%v ns, %s", row.Crossing, row.Proximity), ", ")
		text += fmt.Sprintf("| %s | %v | %s | %s | %s | %s | %s | %s |\n", row.Test, row.Bytes, crossing, ours, who, value, ratio, command.Word(row.TailRatio))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func (r *compareReport) draw(string) ([]byte, error) {
	var points []point
	for i, row := range r.Rows {
		// Of several pairs and distances, the first.
		seen := slices.ContainsFunc(r.Rows[:i], func(x bench.Row) bool {
			return x.Test == row.Test && x.Bytes == row.Bytes && x.Who == row.Who
		})
		if seen || row.Value == nil || row.Test != "latency" && row.Test != "bandwidth" {
			continue
		}
		p := point{series: row.Who, latency: row.Test == "latency", bytes: row.Bytes, y: *row.Value}
		if row.Statistic != "p50" {
			p.says = row.Statistic
		}
		points = append(points, p)
	}
	return picture("Comparison", &r.Environment, points)
}
