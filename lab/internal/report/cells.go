package report

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// Cells is the picture of a scenario.
type Cells struct {
	cellmodel.Options
	Until profile.Time // 0 = all of it
}

// Draw draws what the NICs of a scenario do until a time, 0 = all of it: a band for
// cells received, of high and of low priority at each host that has any, and a stripe for
// each cell. Of many hosts it shows the first and the last.
func (o Cells) Draw(context.Context) ([]byte, error) {
	r, err := cellmodel.Run(o.Options)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, t := range r.Transfers {
		last = max(last, t.Host)
	}
	b := plot.Bands{
		Title:  fmt.Sprintf("Cells: %s, %s", o.Platform.Name, o.Scenario),
		Note:   "virtual time from the first store; " + cellFigures(r),
		Legend: "One stripe is one cell; its colour and its number are those of its message.",
	}
	if end := r.Transfers[len(r.Transfers)-1].End; int64(o.Until) < int64(end) {
		b.To = int64(o.Until)
	}
	type doer struct {
		host int
		step cells.Step
	}
	var doers []doer
	for _, host := range slices.Compact([]int{0, last}) {
		for _, step := range []cells.Step{cells.Receive, cells.High, cells.Low} {
			if slices.ContainsFunc(r.Transfers, func(t cellmodel.Transfer) bool { return t.Host == host && t.Step == step }) {
				doers = append(doers, doer{host, step})
				b.Names = append(b.Names, fmt.Sprintf("host %d, %v", host, step))
			}
		}
	}
	for _, t := range r.Transfers {
		if i := slices.Index(doers, doer{t.Host, t.Step}); i >= 0 {
			b.Stripes = append(b.Stripes, plot.Stripe{Band: i, Number: t.Message, Start: int64(t.Start), End: int64(t.End)})
		}
	}
	return b.SVG()
}

// cellFigures are those that a picture states.
func cellFigures(r *cellmodel.Result) string {
	for _, f := range []struct {
		name string
		time profile.Time
	}{{"urgent cell", r.Urgent}, {"barrier", r.Barrier}, {"round trip", r.RoundTrip}, {"one way", r.OneWay}, {"a cell every", r.Interval}} {
		if f.time > 0 {
			return fmt.Sprintf("%s %s us", f.name, figure(f.time.Microseconds()))
		}
	}
	return ""
}
