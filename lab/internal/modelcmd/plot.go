package modelcmd

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
)

// Payloads of the curves, in bytes.
var (
	curvePayloads = []int{512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192}
	widePayloads  = []int{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
)

// flowFlags say where a picture of transfers gets them from: a log, or a model run. A few payloads can
// be told apart.
type flowFlags struct {
	caseFlags `override:"count" default:"6"`
	Log       string `flag:"log" excludes:"profile,policy,payload,minpulse-send,minpulse-recv,block-copy,log-costs,count,gap-us,poisson,seed,bidirectional,warmup" help:"draw this DMA log (JSON lines with packet, engine, start_us, end_us, bytes) instead of a model run"`
}

// drawn returns the case, which has the log's records if there is one.
func (f *flowFlags) drawn() (report.Case, error) {
	if f.Log == "" {
		return f.measured()
	}
	log, err := readLog(f.Log)
	return report.Case{Recorded: log.Records, Source: "DMA log " + filepath.Base(f.Log)}, err
}

func readLog(name string) (dmalog.Log, error) { return input("--log", name, dmalog.Read) }

type rateFlags struct {
	flowFlags
	Window float64 `flag:"window-us" default:"50" range:"0.001..1000000" help:"length of the windows in microseconds"`
}

func (f *rateFlags) drawn() (report.Case, error) {
	c, err := f.flowFlags.drawn()
	c.Window = profile.Micros(f.Window)
	return c, err
}

type onePayloadFlags struct {
	profileFlag
	payloadFlag `override:"payload" help:"bytes of the payload"`
}

func (f *onePayloadFlags) drawn() (report.Case, error) {
	p, err := loadProfile("--profile", f.Profile)
	return report.Case{Profile: p, Payload: f.Payload, Count: 1}, cmp.Or(between("--payload", f.Payload, 64, search.MaxPayload, "bytes"), err)
}

// maxOthers is the number of thresholds whose curves can be told apart.
const maxOthers = 6

type thresholdFlags struct {
	onePayloadFlags
	Others []int `flag:"other" help:"thresholds of the other side: static pulses, a chart for each side with a curve for each of them, as in the cut-through paper's figure 4 (default: both sides, eager and static, the other at its default)"`
}

func (f *thresholdFlags) drawn() (report.Case, error) {
	c, err := f.onePayloadFlags.drawn()
	c.Others = f.Others
	err = cmp.Or(err, between("--other", len(f.Others), 0, maxOthers, "thresholds"))
	for _, other := range f.Others {
		err = cmp.Or(err, between("--other", other, 1, f.Payload, "bytes, the payload"))
	}
	return c, err
}

type curveFlags struct {
	profileFlag
	Policies []string `flag:"policies" split:"comma" default:"{compared}" help:"delivery policies"`
}

func payloadCurves(payloads []int) func(*curveFlags) (report.Curves, error) {
	return func(f *curveFlags) (report.Curves, error) {
		p, err := loadProfile("--profile", f.Profile)
		return report.Curves{Profile: p, Policies: f.Policies, Payloads: payloads}, cmp.Or(checkPolicies("--policies", f.Policies...), err)
	}
}

// bandwidthFlags ask for curves of policies, or of live transfers.
type bandwidthFlags struct {
	curveFlags
	Logs []string `flag:"log" split:"comma" excludes:"profile,policies" help:"draw the bandwidth of DMA by these logs of live NICs against the size of a transfer: hostTx reads host memory, hostRcv writes it"`
}

// pictured is what has a picture of bandwidths.
type pictured interface {
	Bandwidths(ctx context.Context) ([]byte, error)
}

func (f *bandwidthFlags) drawn() (pictured, error) {
	if len(f.Logs) == 0 {
		return payloadCurves(widePayloads)(&f.curveFlags)
	}
	var all report.Moved
	for _, name := range f.Logs {
		log, err := readLog(name)
		if err != nil {
			return nil, err
		}
		all = append(all, log.Records...)
	}
	return all, nil
}

type reportFlags struct {
	Profiles  []string `flag:"profiles" split:"comma" default:"p6-natoma,alcor" help:"platforms, names or TOML files"`
	Published string   `flag:"published" help:"table of published figures, CSV, to show beside the computed ones"`
}

func (x *commands) page(f *reportFlags, ctx context.Context) ([]byte, error) {
	profiles, err := loadProfiles("--profiles", f.Profiles)
	if err != nil {
		return nil, err
	}
	o := report.PageOptions{Profiles: profiles}
	if f.Published != "" {
		if o.Published, err = readRows(f.Published); err != nil {
			return nil, err
		}
	}
	meter := x.Steps("drawing", report.PageSteps(o))
	defer meter.Stop()
	o.Progress = func() error {
		meter.Add(1)
		return ctx.Err()
	}
	return report.Page(ctx, o)
}
