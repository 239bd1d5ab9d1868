package modelcmd

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
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
	profiles []string
	payloads []int
	variants int
	changes  bool
}

// goalRow is one case of the JSON array.
type goalRow struct {
	Profile   string  `json:"profile"`
	Payload   int     `json:"payload"`
	Engine    string  `json:"changed_engine,omitempty" help:"with --changes"`
	Overhead  float64 `json:"overhead_factor,omitempty" help:"with --changes"`
	Bandwidth float64 `json:"bandwidth_factor,omitempty" help:"with --changes"`
	Best      float64 `json:"best_us"`
	Auto      float64 `json:"auto_us"`
	Gap       float64 `json:"gap_percent"`
	Sender    float64 `json:"sender_gap_percent,omitempty"`
	Stream    float64 `json:"stream_over_store_and_forward,omitempty"`
	Bus       float64 `json:"bus_over_amp,omitempty"`
}

func goalsCommand(e *command.Env) *cobra.Command {
	var f goalFlags
	cmd := &cobra.Command{
		Use:   "goals",
		Short: "Hold policy auto against the best schedules that search finds",
		Long: fmt.Sprintf(`Measures how far the latency of policy auto is from that of the best schedules, in
percent of it: auto knows no costs and has seen %d payloads, the search knows all of
them. The sender's part is what no receiver could have made up for.

With --variants, also on platforms whose costs are those of the profiles times random
factors from a half to two. With --changes, %d payloads after one engine got half or
twice the bandwidth or overhead.

`, report.Learning, report.ChangeFrames) + keys.Array(goalRow{}) + `
What is 0 may be left out.`,
		Example: `  trapeze-lab model goals
  trapeze-lab model goals --profiles alcor,p6-natoma --payloads 1500,9000 --variants 5 --json
  trapeze-lab model goals --changes --payloads 8192`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := f.measure(cmd.Context(), e)
			if err != nil {
				return err
			}
			return e.Print(rows, func(w io.Writer) error { return f.write(w, rows) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.profiles, "profiles", profile.Names(), "platforms, names or TOML files")
	flags.IntSliceVar(&f.payloads, "payloads", report.GoalPayloads, "payload sizes in bytes")
	flags.IntVar(&f.variants, "variants", 0, "random variants of each profile")
	flags.BoolVar(&f.changes, "changes", false, "change an engine's costs in the middle of the run")
	return cmd
}

// platforms loads the profiles, each followed by its variants.
func (f *goalFlags) platforms() ([]*profile.Profile, error) {
	if err := between("--variants", f.variants, 0, maxVariants, ""); err != nil {
		return nil, err
	}
	if n := len(f.profiles) * len(f.payloads) * (f.variants + 1); n < 1 || n > maxGoals {
		return nil, usage("the lists make", fmt.Sprint(n, " cases"), fmt.Sprintf("1 to %d", maxGoals))
	}
	for _, payload := range f.payloads {
		if err := between("--payloads", payload, 1, search.MaxPayload, "bytes"); err != nil {
			return nil, err
		}
	}
	loaded, err := loadProfiles("--profiles", f.profiles)
	if err != nil {
		return nil, err
	}
	var all []*profile.Profile
	for _, p := range loaded {
		all = append(all, p)
		for seed := range f.variants {
			all = append(all, report.Varied(p, uint64(seed)))
		}
	}
	return all, nil
}

func (f *goalFlags) measure(ctx context.Context, e *command.Env) ([]goalRow, error) {
	platforms, err := f.platforms()
	if err != nil {
		return nil, err
	}
	meter := e.Steps("measuring", len(platforms)*len(f.payloads))
	defer meter.Stop()
	var rows []goalRow
	for _, p := range platforms {
		for _, payload := range f.payloads {
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

func (f *goalFlags) rowsOf(ctx context.Context, p *profile.Profile, payload int) ([]goalRow, error) {
	if !f.changes {
		g, err := report.Against(ctx, p, payload)
		if err != nil {
			return nil, err
		}
		return []goalRow{{Profile: g.Profile, Payload: g.Payload, Best: g.Best.Microseconds(), Auto: g.Auto.Microseconds(),
			Gap: 100 * g.Gap(), Sender: 100 * g.SenderGap(), Stream: g.Stream, Bus: g.Bus}}, nil
	}
	changes, err := report.Changes(ctx, p, payload)
	var rows []goalRow
	for _, c := range changes {
		rows = append(rows, goalRow{Profile: c.Profile, Payload: c.Payload, Engine: c.Engine.String(), Overhead: c.Overhead, Bandwidth: c.Bandwidth,
			Best: c.Best.Microseconds(), Auto: c.Auto.Microseconds(), Gap: 100 * c.Gap()})
	}
	return rows, err
}

// platform names the platform, and the change if there was one.
func (r *goalRow) platform() string {
	if r.Engine == "" {
		return r.Profile
	}
	return fmt.Sprintf("%s, %s overhead x%g, bandwidth x%g", r.Profile, r.Engine, r.Overhead, r.Bandwidth)
}

// write prints a table with a row for each platform, and engine that changed, and what
// it sums up to. The table is Markdown.
func (f *goalFlags) write(w io.Writer, rows []goalRow) error {
	var lines []string
	cells := map[string]string{}
	sum, worst, within, close, half := 0.0, 0.0, 0, 0, 0
	stream, bus := math.Inf(1), 0.0
	for _, r := range rows {
		line := r.platform()
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
			if r.Auto-r.Best <= 0.5 {
				half++
			}
		}
	}
	var b strings.Builder
	b.WriteString("| platform |")
	for _, n := range f.payloads {
		fmt.Fprintf(&b, " %d B |", n)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(f.payloads)) + "\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "| %s |%s\n", line, cells[line])
	}
	fmt.Fprintf(&b, "\n%d cases: %d within 3 %%, %d within 1 %%, %d of these within 0.5 us; mean %.2f %%, greatest %.2f %%\n",
		len(rows), within, close, half, sum/float64(len(rows)), worst)
	if !f.changes {
		fmt.Fprintf(&b, "stream bandwidth: at least %.2f %% of store-and-forward's; buses: occupied at most %.2f %% as long as by amp\n", 100*stream, 100*bus)
	}
	for _, r := range rows {
		if r.Gap > 1 {
			fmt.Fprintf(&b, "over 1 %%: %s, %d B: %+.2f %%, %+.3f us", r.platform(), r.Payload, r.Gap, r.Auto-r.Best)
			if r.Engine == "" {
				fmt.Fprintf(&b, ", of which the sender %+.2f %%", r.Sender)
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
