package modelcmd

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
)

// Limits of "trapeze-lab model goals".
const (
	maxVariants = 1000
	maxGoals    = 10_000
)

type goalFlags struct {
	Profiles []string `flag:"profiles" split:"comma" default:"{all-profiles}" help:"platforms, names or TOML files"`
	Payloads []int    `flag:"payloads" default:"{goal-payloads}" help:"payload sizes in bytes"`
	Variants int      `flag:"variants" help:"random variants of each profile"`
	Changes  bool     `flag:"changes" help:"change an engine's costs in the middle of the run"`
}

func (x *commands) goals(ctx context.Context, f *goalFlags, _ []string) error {
	rows, err := f.measure(ctx, x.Env)
	if err != nil {
		return err
	}
	return x.Print(rows, func(w io.Writer) error { return f.write(w, rows) })
}

// platforms loads the profiles, each followed by its variants.
func (f *goalFlags) platforms() ([]*profile.Profile, error) {
	if err := between("--variants", f.Variants, 0, maxVariants, ""); err != nil {
		return nil, err
	}
	if n := len(f.Profiles) * len(f.Payloads) * (f.Variants + 1); n < 1 || n > maxGoals {
		return nil, usage("the lists make", fmt.Sprint(n, " cases"), fmt.Sprintf("1 to %d", maxGoals))
	}
	for _, payload := range f.Payloads {
		if err := between("--payloads", payload, 1, search.MaxPayload, "bytes"); err != nil {
			return nil, err
		}
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

func (f *goalFlags) measure(ctx context.Context, e *command.Env) ([]report.Goal, error) {
	platforms, err := f.platforms()
	if err != nil {
		return nil, err
	}
	meter := e.Steps("measuring", len(platforms)*len(f.Payloads))
	defer meter.Stop()
	var rows []report.Goal
	for _, p := range platforms {
		for _, payload := range f.Payloads {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			more, err := f.rowsOf(ctx, p, payload)
			if err != nil {
				return nil, fmt.Errorf("%s, %d bytes: %w", p.Name, payload, err)
			}
			rows = append(rows, more...)
			meter.Add(1)
		}
	}
	return rows, nil
}

func (f *goalFlags) rowsOf(ctx context.Context, p *profile.Profile, payload int) ([]report.Goal, error) {
	if f.Changes {
		return report.Changes(ctx, p, payload)
	}
	g, err := report.Against(ctx, p, payload)
	if err != nil {
		return nil, err
	}
	return []report.Goal{*g}, nil
}

// platformOf names the platform, and the change if there was one.
func platformOf(r *report.Goal) string {
	if r.Engine == "" {
		return r.Profile
	}
	return fmt.Sprintf("%s, %s overhead x%g, bandwidth x%g", r.Profile, r.Engine, r.Overhead, r.Bandwidth)
}

// write prints a table with a row for each platform, and engine that changed, and what
// it sums up to. The table is Markdown.
func (f *goalFlags) write(w io.Writer, rows []report.Goal) error {
	var lines []string
	cells := map[string]string{}
	sum, worst, within, close, half := 0.0, 0.0, 0, 0, 0
	stream, bus := math.Inf(1), 0.0
	for _, r := range rows {
		line := platformOf(&r)
		if _, known := cells[line]; !known {
			lines = append(lines, line)
		}
		cells[line] += fmt.Sprintf(" %.2f %% |", r.Gap)
		sum += r.Gap
		worst, stream, bus = max(worst, r.Gap), min(stream, r.Stream), max(bus, r.Bus)
		if r.Gap <= 3 {
			within++
		}
		if r.Gap <= 1 {
			close++
			if r.Auto-r.Best <= profile.Micros(0.5) {
				half++
			}
		}
	}
	var b strings.Builder
	b.WriteString("| platform |")
	for _, n := range f.Payloads {
		fmt.Fprintf(&b, " %d B |", n)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(f.Payloads)) + "\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "| %s |%s\n", line, cells[line])
	}
	fmt.Fprintf(&b, "\n%d cases: %d within 3 %%, %d within 1 %%, %d of these within 0.5 us; mean %.2f %%, greatest %.2f %%\n",
		len(rows), within, close, half, sum/float64(len(rows)), worst)
	if !f.Changes {
		fmt.Fprintf(&b, "stream bandwidth: at least %.2f %% of store-and-forward's; buses: occupied at most %.2f %% as long as by amp\n", 100*stream, 100*bus)
	}
	for _, r := range rows {
		if r.Gap > 1 {
			fmt.Fprintf(&b, "over 1 %%: %s, %d B: %+.2f %%, %+.3f us", platformOf(&r), r.Payload, r.Gap, (r.Auto - r.Best).Microseconds())
			if r.Engine == "" {
				fmt.Fprintf(&b, ", of which the sender %+.2f %%", r.Sender)
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
