package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
)

// maxFactor bounds the factors of a projection.
const maxFactor = 1000

// Buses and links of a projection on PCIe: one profile for each generation, and the rates of
// Ethernet in Gb/s.
var (
	pcieBuses = []string{"pcie3-x8-10g", "pcie4-x16-100g", "pcie5-x16-400g", "pcie6-x16-800g"}
	ethernets = []float64{10, 25, 50, 100, 200, 400, 800}
)

// projectFlags describe a projection.
type projectFlags struct {
	profileFlag
	policyFlag `override:"policy" help:"delivery policy beside store and forward"`
	payloadFlag
	Bus        string `flag:"bus" default:"1..8" help:"factors of the buses' bandwidth: 1,2,4 or 1..8"`
	Link       string `flag:"link" default:"1..8" help:"factors of the link's bandwidth: 1,2,4 or 1..8"`
	PCIe       bool   `flag:"pcie" help:"PCIe 3 to 6 beside 10 to 800 Gb/s instead of factors"`
	outputFile `override:"output" help:"picture of the reductions, SVG file to write instead, whole or not at all"`
	Given      cmdtable.Given
}

// factors reads "1,2,4" or "1..8", which doubles from one to the next.
func factors(flag, text string) (all []float64, err error) {
	const allowed = "factors from 0.001 to 1000, as in 1,2,4 or 1..8 (each twice the one before)"
	low, high, doubled := strings.Cut(text, "..")
	list := strings.Split(text, ",")
	if doubled {
		list = []string{low, high}
	}
	for _, word := range list {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(f >= 1.0/maxFactor && f <= maxFactor) {
			return nil, usage(flag, text, allowed)
		}
		all = append(all, f)
	}
	if !doubled {
		return all, nil
	}
	if all[1] < all[0] {
		return nil, usage(flag, text, allowed)
	}
	last := all[1]
	for all = all[:1]; all[len(all)-1]*2 <= last; {
		all = append(all, all[len(all)-1]*2)
	}
	return all, nil
}

// projection checks the flags and loads the profiles.
func (f *projectFlags) projection() (o report.Projection, err error) {
	longest := 1 << 20
	if f.Policy == "optimal" {
		longest = search.MaxPayload
	}
	if err := cmp.Or(checkPolicies("--policy", f.Policy), between("--payload", f.Payload, 1, longest, "bytes")); err != nil {
		return o, err
	}
	o = report.Projection{Policy: f.Policy, Payload: f.Payload}
	if !f.PCIe {
		return f.scaled(o)
	}
	for _, flag := range []struct{ name, value string }{{"profile", f.Profile}, {"bus", f.Bus}, {"link", f.Link}} {
		if f.Given(flag.name) {
			return o, usage("--"+flag.name, flag.value, "without --pcie, which has buses and links of its own")
		}
	}
	for _, name := range pcieBuses {
		p, err := profile.Hosts.Load(name)
		if err != nil {
			return o, err
		}
		o.Buses, o.Labels = append(o.Buses, p), append(o.Labels, name[:strings.LastIndex(name, "-")])
	}
	for _, gigabits := range ethernets {
		o.Links = append(o.Links, gigabits*1000/8)
	}
	return o, nil
}

// scaled makes the buses and links of one profile faster.
func (f *projectFlags) scaled(o report.Projection) (report.Projection, error) {
	buses, err := factors("--bus", f.Bus)
	if err != nil {
		return o, err
	}
	links, err := factors("--link", f.Link)
	if err != nil {
		return o, err
	}
	p, err := loadProfile("--profile", f.Profile)
	if err != nil {
		return o, err
	}
	for _, b := range buses {
		o.Buses, o.Labels = append(o.Buses, report.FasterBus(p, b)), append(o.Labels, fmt.Sprintf("bus x %g", b))
	}
	for _, l := range links {
		o.Links = append(o.Links, p.Link.Pulse.Bandwidth()*l)
	}
	return o, nil
}

func (x *commands) project(ctx context.Context, f *projectFlags, _ []string) error {
	if f.Given("output") {
		if err := f.check(); err != nil {
			return err
		}
	}
	o, err := f.projection()
	if err != nil {
		return err
	}
	rows, err := o.Run(ctx)
	if err != nil {
		return err
	}
	if f.Output == "" {
		return x.Print(rows, func(w io.Writer) error { return table.Write(w, rows) })
	}
	svg, err := o.Draw(rows)
	if err != nil {
		return err
	}
	return f.write(x.Env, svg)
}
