package modelcmd

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
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
	Log       string `flag:"log" excludes:"profile,policy,payload,minpulse-send,minpulse-recv,log-costs,count,gap-us,poisson,seed,bidirectional,warmup" help:"draw this DMA log (JSON lines with packet, engine, start_us, end_us, bytes) instead of a model run"`
}

// source returns the case, and the log's records if there is one.
func (f *flowFlags) source() (report.Case, []dmalog.Record, string, error) {
	if f.Log == "" {
		c, err := f.measured()
		return c, nil, "", err
	}
	log, err := readLog(f.Log)
	if err != nil {
		return report.Case{}, nil, "", err
	}
	if log.Records == nil {
		log.Records = []dmalog.Record{}
	}
	return report.Case{}, log.Records, "DMA log " + filepath.Base(f.Log), nil
}

// readLog reads the log that --log names.
func readLog(name string) (dmalog.Log, error) {
	file, err := openInput("--log", name)
	if err != nil {
		return dmalog.Log{}, err
	}
	log, err := dmalog.Read(file, name)
	return log, errors.Join(err, file.Close())
}

// picture makes the row of a command that draws one picture, by flags that draw checks.
func picture[F any](x *commands, name string, draw func(*F, context.Context) ([]byte, error)) cmdtable.Row {
	type flags struct {
		Of F
		outputFile
	}
	return cmdtable.Does(name, func(ctx context.Context, f *flags, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		svg, err := draw(&f.Of, ctx)
		if err != nil {
			return err
		}
		return f.write(x.Env, svg)
	}, written{})
}

func (f *flowFlags) draw(ctx context.Context) ([]byte, error) {
	c, records, source, err := f.source()
	if err != nil {
		return nil, err
	}
	return report.FlowGraph(ctx, c, records, source)
}

type rateFlags struct {
	flowFlags
	Window float64 `flag:"window-us" default:"50" help:"length of the windows in microseconds"`
}

func (f *rateFlags) draw(ctx context.Context) ([]byte, error) {
	if err := between("--window-us", f.Window, 0.001, 1e6, ""); err != nil {
		return nil, err
	}
	c, records, source, err := f.source()
	if err != nil {
		return nil, err
	}
	return report.Rates(ctx, c, records, source, profile.Micros(f.Window))
}

type onePayloadFlags struct {
	profileFlag
	payloadFlag `override:"payload" help:"bytes of the payload"`
}

// onePayload draws one payload, of so many bytes at most, on one platform.
func onePayload(most int, draw func(context.Context, *profile.Profile, int) ([]byte, error)) func(*onePayloadFlags, context.Context) ([]byte, error) {
	return func(f *onePayloadFlags, ctx context.Context) ([]byte, error) {
		if err := between("--payload", f.Payload, 64, most, "bytes"); err != nil {
			return nil, err
		}
		p, err := loadProfile("--profile", f.Profile)
		if err != nil {
			return nil, err
		}
		return draw(ctx, p, f.Payload)
	}
}

type curveFlags struct {
	profileFlag
	Policies []string `flag:"policies" split:"comma" default:"{compared}" help:"delivery policies"`
}

// payloadCurves draws latency or bandwidth against payload.
func payloadCurves(draw func(context.Context, *profile.Profile, []string, []int) ([]byte, error), payloads []int) func(*curveFlags, context.Context) ([]byte, error) {
	return func(f *curveFlags, ctx context.Context) ([]byte, error) {
		if err := checkPolicies("--policies", f.Policies...); err != nil {
			return nil, err
		}
		p, err := loadProfile("--profile", f.Profile)
		if err != nil {
			return nil, err
		}
		return draw(ctx, p, f.Policies, payloads)
	}
}

type reportFlags struct {
	Profiles  []string `flag:"profiles" split:"comma" default:"p6-natoma,alcor" help:"platforms, names or TOML files"`
	Published string   `flag:"published" help:"table of published figures, CSV, to show beside the computed ones"`
}

// page draws all pictures.
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
