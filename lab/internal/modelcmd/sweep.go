package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
	"github.com/trapeze-nic/trapeze/lab/internal/virtual"
	"github.com/trapeze-nic/trapeze/pipeline"
)

const maxCases = 100_000

type sweepFlags struct {
	Profiles      []string  `flag:"profiles" split:"comma" default:"p6-natoma" help:"platforms, names or TOML files"`
	Policies      []string  `flag:"policies" split:"comma" default:"amp" help:"delivery policies"`
	Payloads      []int     `flag:"payloads" default:"8192" range:"1..16777216" help:"payload sizes in bytes"`
	Thresholds    []int     `flag:"thresholds" default:"0" range:"0.." help:"thresholds or pulses in bytes, 0 = default"`
	Sides         string    `flag:"sides" default:"both" oneof:"both,send,recv" help:"which side the thresholds are for: both, send or recv"`
	Gaps          []float64 `flag:"gaps-us" default:"0" range:"0..1000000" help:"microseconds between postings, 0 to 1000000; 0 = as fast as the host can"`
	Counts        []int     `flag:"counts" default:"100" range:"1..100000" help:"payloads of the stream"`
	Poisson       bool      `flag:"poisson" help:"make the gaps exponential"`
	Bidirectional bool      `flag:"bidirectional" help:"both hosts send a stream"`
	Seed          uint64    `flag:"seed" default:"1" help:"seed of the random gaps"`
	Given         cmdtable.Given
}

type sweepRow struct {
	Profile   string       `json:"profile"`
	Policy    string       `json:"policy"`
	Payload   int          `json:"payload"`
	Send      int          `json:"minpulse_send"`
	Receive   int          `json:"minpulse_recv"`
	Gap       profile.Time `json:"gap_us"`
	Count     int          `json:"count"`
	Latency   profile.Time `json:"latency_us"`
	Mean      profile.Time `json:"mean_latency_us"`
	Bandwidth float64      `json:"bandwidth_mb_s"`
	Busy      profile.Time `json:"bus_busy_us"`
}

func (f *sweepFlags) check() error {
	if f.Poisson && !f.Given("gaps-us") {
		return usage("--poisson", "true", "together with --gaps-us, the means of the gaps")
	}
	n := len(f.Profiles) * len(f.Policies) * len(f.Payloads) * len(f.Thresholds) * len(f.Gaps) * len(f.Counts)
	if n < 1 || n > maxCases {
		return usage("the lists make", fmt.Sprint(n, " combinations"), fmt.Sprintf("1 to %d", maxCases))
	}
	errs := []error{checkPolicies("--policies", f.Policies...)}
	largest := pipeline.MaxFrame
	if slices.Contains(f.Policies, "optimal") {
		largest = search.MaxPayload
	}
	for _, payload := range f.Payloads {
		errs = append(errs, between("--payloads", payload, 1, largest, "bytes"))
		for _, threshold := range f.Thresholds {
			errs = append(errs, between("--thresholds", threshold, 0, payload, "bytes, the payload; 0 = default"))
		}
	}
	return cmp.Or(errs...)
}

// cases lists the combinations, those of the first profile first.
func (f *sweepFlags) cases() ([]report.Case, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	profiles, err := loadProfiles("--profiles", f.Profiles)
	if err != nil {
		return nil, err
	}
	cases := make([]report.Case, len(profiles)*len(f.Policies)*len(f.Payloads)*len(f.Thresholds)*len(f.Gaps)*len(f.Counts))
	for i := range cases {
		of := i
		next := func(length int) (k int) {
			k, of = of%length, of/length
			return k
		}
		c := report.Case{Random: f.Poisson, Seed: f.Seed, Bidirectional: f.Bidirectional, Warmup: -1}
		c.Count, c.Gap = f.Counts[next(len(f.Counts))], profile.Micros(f.Gaps[next(len(f.Gaps))])
		threshold := f.Thresholds[next(len(f.Thresholds))]
		if f.Sides != "recv" {
			c.MinPulseSend = threshold
		}
		if f.Sides != "send" {
			c.MinPulseReceive = threshold
		}
		c.Payload, c.Policy, c.Profile = f.Payloads[next(len(f.Payloads))], f.Policies[next(len(f.Policies))], profiles[of]
		cases[i] = c
	}
	return cases, nil
}

func (x *commands) sweep(cases []report.Case, ctx context.Context) ([]sweepRow, error) {
	meter := x.Steps("measuring", len(cases))
	defer meter.Stop()
	rows := make([]sweepRow, 0, len(cases))
	for _, c := range cases {
		m, err := c.Measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s, %s, %d bytes: %w", c.Profile.Name, c.Policy, c.Payload, err)
		}
		rows = append(rows, sweepRow{c.Profile.Name, c.Policy, c.Payload, c.MinPulseSend, c.MinPulseReceive, c.Gap, c.Count, m.Latency, m.Mean, m.Bandwidth, m.Busy})
		meter.Add(1)
	}
	return rows, nil
}

type trunkFlags struct {
	profileFlag
	payloadFlag
	Count    int     `flag:"count" default:"100" range:"1..100000" help:"payloads of each sender"`
	Gap      float64 `flag:"gap-us" range:"0..1000000" help:"microseconds between a sender's postings (default: as fast as the host can)"`
	Senders  int     `flag:"senders" default:"2" range:"1..16" help:"hosts that send, each to one of its own"`
	Slow     float64 `flag:"slow" default:"1" range:"1..1000" help:"the first sender's bus takes so many times as long for each byte"`
	Packet   int     `flag:"packet" range:"0..16777216" help:"most bytes of a packet; the trunk is free between packets (default: a payload is one packet)"`
	Watchdog float64 `flag:"watchdog-us" range:"0..1000000" help:"end a payload whose sender holds the trunk and moves nothing for so many microseconds (default: never)"`
}

// shared checks the flags and loads the profile: a case for each policy.
func (f *trunkFlags) shared(flag string, policies ...string) (all []report.Case, err error) {
	if err := checkPolicies(flag, policies...); err != nil {
		return nil, err
	}
	p, err := loadProfile("--profile", f.Profile)
	for _, policy := range policies {
		all = append(all, report.Case{Profile: p, Policy: policy, Payload: f.Payload, Count: f.Count, Gap: profile.Micros(f.Gap), Warmup: -1,
			Trunk: virtual.Trunk{Senders: f.Senders, Slow: f.Slow, Packet: f.Packet, Watchdog: profile.Micros(f.Watchdog)}})
	}
	return all, err
}

type trunksFlags struct {
	trunkFlags
	Policies []string `flag:"policies" split:"comma" default:"store-and-forward,eager,amp" help:"delivery policies"`
}

func (f *trunksFlags) cases() ([]report.Case, error) { return f.shared("--policies", f.Policies...) }

// trunkPicture shows who holds a trunk.
type trunkPicture struct {
	trunkFlags `override:"count" default:"4"`
	policyFlag
}

func (f *trunkPicture) one() (report.Case, error) {
	all, err := f.shared("--policy", f.Policy)
	if err != nil {
		return report.Case{}, err
	}
	return all[0], nil
}

type fetchFlags struct {
	loneFlags
	Server float64 `flag:"server-us" range:"0..1000000" help:"microseconds that the server takes between the request and the page"`
}

func (f *fetchFlags) measured() (c report.Case, err error) {
	c, err = f.loneFlags.measured()
	c.Server = profile.Micros(f.Server)
	return c, err
}

// fetched is the JSON object of "trapeze-lab model fetch". In its transfers, packets of flow 1
// are requests, and their bytes those of the control message.
type fetched struct {
	*report.Fetch
	Transfers transfers `json:"transfers" text:"flat"`
}

func fetch(c report.Case, ctx context.Context) (fetched, error) {
	r, err := c.Fetch(ctx)
	if err != nil {
		return fetched{}, err
	}
	return fetched{r, transfersOf(r.Log)}, nil
}

// Buses and links of a projection on PCIe: one profile for each generation, and the rates of
// Ethernet in Gb/s.
var (
	pcieBuses = []string{"pcie3-x8-10g", "pcie4-x16-100g", "pcie5-x16-400g", "pcie6-x16-800g"}
	ethernets = []float64{10, 25, 50, 100, 200, 400, 800}
)

type projectFlags struct {
	profileFlag
	policyFlag `override:"policy" help:"delivery policy beside store and forward"`
	payloadFlag
	Bus   []float64 `flag:"bus" default:"1,2,4,8" range:"0.001..1000" help:"factors of the buses' bandwidth"`
	Link  []float64 `flag:"link" default:"1,2,4,8" range:"0.001..1000" help:"factors of the link's bandwidth"`
	PCIe  bool      `flag:"pcie" help:"PCIe 3 to 6 beside 10 to 800 Gb/s instead of factors"`
	Given cmdtable.Given
}

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
