package modelcmd

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/dmalog"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// Payloads of the curves, in bytes.
var (
	curvePayloads = []int{512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192}
	widePayloads  = []int{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
)

// PlotCommand returns the command "plot" with its subcommands.
func PlotCommand(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plot",
		Short: "Draw packet flow graphs and curves as SVG, or all of them as one HTML page",
		Long: `Draw packet flow graphs and curves as SVG, or all of them as one HTML page.

JSON keys of each: ` + keys.List(written{}) + `.`,
		Example: `  trapeze-lab plot flow --profile p6-natoma --policy amp --count 6 --output flow.svg
  trapeze-lab plot flow --log device.log --output live.svg
  trapeze-lab plot report --profiles p6-natoma --output report.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(flowCommand(e), fetchPicture(e), transferPicture(e), cellPicture(e), rateCommand(e), thresholdCommand(e), schedulesCommand(e), trunkPicture(e), bridgePicture(e), payloadCommand(e, "latency"), payloadCommand(e, "bandwidth"), reportCommand(e))
	return cmd
}

// pictureHelp belongs into the description of every command that writes a picture.
var pictureHelp = ".\n\n" + keys.Of(written{})

// pictureFlags adds --output, which every picture needs.
func pictureFlags(cmd *cobra.Command, output *outputFile) {
	output.register(cmd, "file to write, whole or not at all (required)")
	cmd.PreRunE = func(*cobra.Command, []string) error { return output.check() }
}

// recorded is where a picture of transfers gets them from: a log, or a model run.
type recorded struct {
	f   caseFlags
	log string
}

func (r *recorded) register(cmd *cobra.Command) {
	r.f.register(cmd)
	cmd.Flags().StringVar(&r.log, "log", "", "draw this DMA log (JSON lines with packet, engine, start_us, end_us, bytes) instead of a model run")
	const few = "6" // that stripes can be told apart
	if err := cmd.Flags().Set("count", few); err != nil {
		cobra.CheckErr(err)
	}
	cmd.Flags().Lookup("count").DefValue = few
}

// source returns the case, and the log's records if there is one.
func (r *recorded) source() (report.Case, []dmalog.Record, string, error) {
	if r.log == "" {
		c, err := r.f.measured()
		return c, nil, "", err
	}
	log, err := readLog(r.log)
	if err != nil {
		return report.Case{}, nil, "", err
	}
	if log.Records == nil {
		log.Records = []dmalog.Record{}
	}
	return report.Case{}, log.Records, "DMA log " + filepath.Base(r.log), nil
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

// picture makes a command that draws one picture. draw checks the flags that its caller
// adds.
func picture(e *command.Env, name, short, example string, draw func(context.Context) ([]byte, error)) *cobra.Command {
	var output outputFile
	cmd := &cobra.Command{
		Use:     name + " --output FILE.svg",
		Short:   short,
		Long:    short + pictureHelp,
		Example: "  trapeze-lab plot " + name + " " + example + " --output " + name + ".svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svg, err := draw(cmd.Context())
			if err != nil {
				return err
			}
			return output.write(e, svg)
		},
	}
	pictureFlags(cmd, &output)
	return cmd
}

func flowCommand(e *command.Env) *cobra.Command {
	var r recorded
	cmd := picture(e, "flow", "Packet flow graph: one band for each engine and direction, one stripe for each transfer",
		"--profile p6-natoma --policy amp --count 8", func(ctx context.Context) ([]byte, error) {
			c, records, source, err := r.source()
			if err != nil {
				return nil, err
			}
			return report.FlowGraph(ctx, c, records, source)
		})
	r.register(cmd)
	return cmd
}

func rateCommand(e *command.Env) *cobra.Command {
	var r recorded
	var window float64
	cmd := picture(e, "rate", "Every engine's effective bandwidth over time",
		"--profile p6-natoma --policy amp --count 20 --window-us 50", func(ctx context.Context) ([]byte, error) {
			if err := between("--window-us", window, 0.001, 1e6, ""); err != nil {
				return nil, err
			}
			c, records, source, err := r.source()
			if err != nil {
				return nil, err
			}
			return report.Rates(ctx, c, records, source, profile.Micros(window))
		})
	r.register(cmd)
	cmd.Flags().Float64Var(&window, "window-us", 50, "length of the windows in microseconds")
	return cmd
}

func thresholdCommand(e *command.Env) *cobra.Command {
	return payloadPicture(e, "threshold", "Latency against the threshold of the sender, the receiver and both, eager and static",
		"--profile alcor --payload 8192", 1<<20, report.Thresholds)
}

func schedulesCommand(e *command.Env) *cobra.Command {
	return payloadPicture(e, "schedules", "Store and forward, the best fixed pulse and the best variable schedule, over one axis of time",
		"--profile p6-natoma", report.MaxScheduled, report.Schedules)
}

// payloadPicture makes a command that draws a picture of one payload on one platform.
func payloadPicture(e *command.Env, what, short, example string, most int, draw func(context.Context, *profile.Profile, int) ([]byte, error)) *cobra.Command {
	var name string
	var payload int
	cmd := picture(e, what, short, example, func(ctx context.Context) ([]byte, error) {
		if err := between("--payload", payload, 64, most, "bytes"); err != nil {
			return nil, err
		}
		p, err := loadProfile("--profile", name)
		if err != nil {
			return nil, err
		}
		return draw(ctx, p, payload)
	})
	cmd.Flags().StringVar(&name, "profile", defaultProfile, "platform by name, or a TOML file")
	cmd.Flags().IntVar(&payload, "payload", defaultPayload, "bytes of the payload")
	return cmd
}

// payloadCommand draws latency or bandwidth against payload.
func payloadCommand(e *command.Env, what string) *cobra.Command {
	var name string
	var policies []string
	draw, payloads := report.Latencies, curvePayloads
	if what == "bandwidth" {
		draw, payloads = report.Bandwidths, widePayloads
	}
	cmd := picture(e, what, what+" against payload, for several policies", "--profile p6-natoma", func(ctx context.Context) ([]byte, error) {
		if err := checkPolicies("--policies", policies...); err != nil {
			return nil, err
		}
		p, err := loadProfile("--profile", name)
		if err != nil {
			return nil, err
		}
		return draw(ctx, p, policies, payloads)
	})
	cmd.Flags().StringVar(&name, "profile", defaultProfile, "platform by name, or a TOML file")
	cmd.Flags().StringSliceVar(&policies, "policies", report.Compared, "delivery policies")
	return cmd
}

func reportCommand(e *command.Env) *cobra.Command {
	var names []string
	var file string
	var output outputFile
	cmd := &cobra.Command{
		Use:   "report --output FILE.html",
		Short: "One self-contained HTML page with all pictures, and published figures beside computed ones",
		Long:  "One self-contained HTML page with all pictures, and published figures beside computed ones" + pictureHelp,
		Example: `  trapeze-lab plot report --published published.csv --output report.html
  trapeze-lab plot report --profiles p6-natoma,pcie4-x16-100g --output report.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			profiles, err := loadProfiles("--profiles", names)
			if err != nil {
				return err
			}
			o := report.PageOptions{Profiles: profiles}
			if file != "" {
				rows, err := readRows(file)
				if err != nil {
					return err
				}
				o.Published = rows
			}
			meter := e.Steps("drawing", report.PageSteps(o))
			defer meter.Stop()
			o.Progress = func() error {
				meter.Add(1)
				return cmd.Context().Err()
			}
			page, err := report.Page(cmd.Context(), o)
			if err != nil {
				return err
			}
			meter.Stop()
			return output.write(e, page)
		},
	}
	cmd.Flags().StringSliceVar(&names, "profiles", []string{defaultProfile, "alcor"}, "platforms, names or TOML files")
	cmd.Flags().StringVar(&file, "published", "", "table of published figures, CSV, to show beside the computed ones")
	pictureFlags(cmd, &output)
	return cmd
}
