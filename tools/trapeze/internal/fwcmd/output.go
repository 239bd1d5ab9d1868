package fwcmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// table writes lines whose cells, separated by tabs, stand in columns.
func table(w io.Writer, lines ...string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		if _, err := fmt.Fprintln(t, l); err != nil {
			return err
		}
	}
	return t.Flush()
}

// row joins cells.
func row(cells ...any) string {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = fmt.Sprint(c)
	}
	return strings.Join(text, "\t")
}

// programLines is a table of it all.
func programLines(p *telemetry.Program) []string {
	lines := []string{row("state", p.State)}
	if p.Fault != "" {
		lines = append(lines, row("fault", p.Fault))
	}
	for _, f := range []struct{ key, value string }{{"name", p.Name}, {"version", p.Version}, {"build ID", p.BuildID}, {"digest", p.Digest}} {
		if f.value != "" {
			lines = append(lines, row(f.key, f.value))
		}
	}
	lines = append(lines, row("slot", telemetry.SlotName(p.Slot)), row("previous", telemetry.SlotName(p.Previous)),
		row("slots", fmt.Sprintf("%d of %d bytes", p.Slots, p.SlotBytes)), row("ABI", p.ABI))
	return lines
}

// programHooks is a table of the hooks with programs.
func programHooks(p *telemetry.Program) []string {
	lines := []string{"", row("HOOK", "RUNS", "FAULTS", "WORST CASE", "DECIDES")}
	for _, h := range p.Active() {
		decides := "the program"
		if !h.Installed {
			decides = "the built-in behaviour"
		}
		lines = append(lines, row(h.Hook, h.Runs, h.Faults, h.WorstCase, decides))
	}
	if len(lines) == 2 {
		return nil
	}
	return lines
}
