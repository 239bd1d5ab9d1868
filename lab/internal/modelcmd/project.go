package modelcmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
)

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
	Bus   []float64 `flag:"bus" default:"1,2,4,8" range:"0.001..1000" help:"factors of the buses' bandwidth"`
	Link  []float64 `flag:"link" default:"1,2,4,8" range:"0.001..1000" help:"factors of the link's bandwidth"`
	PCIe  bool      `flag:"pcie" help:"PCIe 3 to 6 beside 10 to 800 Gb/s instead of factors"`
	Given cmdtable.Given
}

// projection checks the flags and loads the profiles.
func (f *projectFlags) projection() (o report.Projection, err error) {
	if err := cmp.Or(checkPolicies("--policy", f.Policy), between("--payload", f.Payload, 1, search.MaxPayload, "bytes")); err != nil {
		return o, err
	}
	o = report.Projection{Policy: f.Policy, Payload: f.Payload}
	if !f.PCIe {
		return f.scaled(o)
	}
	for _, flag := range []string{"profile", "bus", "link"} {
		if f.Given(flag) {
			return o, option.Errorf("--%s goes without --pcie, which has buses and links of its own", flag)
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
	p, err := loadProfile("--profile", f.Profile)
	if err != nil {
		return o, err
	}
	for _, b := range f.Bus {
		o.Buses, o.Labels = append(o.Buses, report.FasterBus(p, b)), append(o.Labels, fmt.Sprintf("bus x %g", b))
	}
	for _, l := range f.Link {
		o.Links = append(o.Links, p.Link.Pulse.Bandwidth()*l)
	}
	return o, nil
}
