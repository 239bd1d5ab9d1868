package modelcmd

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/trapeze-nic/trapeze/internal/jsonout"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/pipeline/dmalog"
)

// Payloads of the curves, in bytes.
var (
	curvePayloads = []int{512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192}
	widePayloads  = []int{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
)

// PlotCommand returns the command "plot" with its subcommands.
func PlotCommand(e Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plot",
		Short: "Draw packet flow graphs and curves as SVG, or all of them as one HTML page",
		Long: `Draw packet flow graphs and curves as SVG, or all of them as one HTML page.

JSON keys of each: file, bytes.`,
		Example: `  trapeze plot flow --profile p6-natoma --policy amp --count 6 --output flow.svg
  trapeze plot flow --log device.log --output live.svg
  trapeze plot report --profile p6-natoma --output report.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(flowCommand(e), rateCommand(e), thresholdCommand(e), payloadCommand(e, "latency"), payloadCommand(e, "bandwidth"), reportCommand(e))
	return cmd
}

// pictureHelp belongs into the description of every command that writes a picture.
const pictureHelp = ".\n\nJSON keys: file, bytes."

// written is what a command that writes a file prints with --json.
type written struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

// writeResult writes a picture or table, and says so if asked to.
func writeResult(e Env, cmd *cobra.Command, file string, content []byte) error {
	if err := writeFile(file, content); err != nil {
		return err
	}
	if !e.JSON() {
		return nil
	}
	return jsonout.Print(cmd.OutOrStdout(), written{file, len(content)})
}

// outputFlag adds --output, which every picture needs.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVar(output, "output", "", "file to write, whole or not at all (required)")
	cmd.PreRunE = func(*cobra.Command, []string) error { return checkOutput("--output", *output) }
}

// recorded is where a picture of transfers gets them from: a log, or a model run.
type recorded struct {
	f      caseFlags
	log    string
	output string
}

func (r *recorded) register(cmd *cobra.Command) {
	r.f.register(cmd)
	cmd.Flags().StringVar(&r.log, "log", "", "draw this DMA log (JSON lines with packet, engine, start_us, end_us, bytes) instead of a model run")
	const few = "6" // that stripes can be told apart
	if err := cmd.Flags().Set("count", few); err != nil {
		cobra.CheckErr(err)
	}
	cmd.Flags().Lookup("count").DefValue = few
	outputFlag(cmd, &r.output)
}

// source returns the case, and the log's records if there is one.
func (r *recorded) source() (report.Case, []dmalog.Record, string, error) {
	if r.log == "" {
		c, err := r.f.measured()
		return c, nil, "", err
	}
	file, err := openInput("--log", r.log)
	if err != nil {
		return report.Case{}, nil, "", err
	}
	records, err := dmalog.Read(file, r.log)
	if err = errors.Join(err, file.Close()); err != nil {
		return report.Case{}, nil, "", err
	}
	if records == nil {
		records = []dmalog.Record{}
	}
	return report.Case{}, records, "DMA log " + r.log, nil
}

func flowCommand(e Env) *cobra.Command {
	var r recorded
	cmd := &cobra.Command{
		Use:     "flow --output FILE.svg",
		Short:   "Packet flow graph: one band for each engine and direction, one stripe for each transfer",
		Long:    "Packet flow graph: one band for each engine and direction, one stripe for each transfer" + pictureHelp,
		Example: "  trapeze plot flow --profile p6-natoma --policy amp --count 8 --output flow.svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, records, source, err := r.source()
			if err != nil {
				return err
			}
			svg, err := report.FlowGraph(cmd.Context(), c, records, source)
			if err != nil {
				return err
			}
			return writeResult(e, cmd, r.output, svg)
		},
	}
	r.register(cmd)
	return cmd
}

func rateCommand(e Env) *cobra.Command {
	var r recorded
	var window float64
	cmd := &cobra.Command{
		Use:     "rate --output FILE.svg",
		Short:   "Every engine's effective bandwidth over time",
		Long:    "Every engine's effective bandwidth over time" + pictureHelp,
		Example: "  trapeze plot rate --profile p6-natoma --policy amp --count 20 --window-us 50 --output rate.svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--window-us", window, 0.001, 1e6, ""); err != nil {
				return err
			}
			c, records, source, err := r.source()
			if err != nil {
				return err
			}
			svg, err := report.Rates(cmd.Context(), c, records, source, profile.Micros(window))
			if err != nil {
				return err
			}
			return writeResult(e, cmd, r.output, svg)
		},
	}
	r.register(cmd)
	cmd.Flags().Float64Var(&window, "window-us", 50, "length of the windows in microseconds")
	return cmd
}

func thresholdCommand(e Env) *cobra.Command {
	var name, output string
	var payload int
	cmd := &cobra.Command{
		Use:     "threshold --output FILE.svg",
		Short:   "Latency against the threshold of the sender, the receiver and both",
		Long:    "Latency against the threshold of the sender, the receiver and both" + pictureHelp,
		Example: "  trapeze plot threshold --profile alcor --payload 8192 --output threshold.svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--payload", payload, 64, 1<<20, "bytes"); err != nil {
				return err
			}
			p, err := loadProfile("--profile", name)
			if err != nil {
				return err
			}
			svg, err := report.Thresholds(cmd.Context(), p, payload)
			if err != nil {
				return err
			}
			return writeResult(e, cmd, output, svg)
		},
	}
	cmd.Flags().StringVar(&name, "profile", defaultProfile, "platform by name, or a TOML file")
	cmd.Flags().IntVar(&payload, "payload", defaultPayload, "bytes of the payload")
	outputFlag(cmd, &output)
	return cmd
}

// payloadCommand draws latency or bandwidth against payload.
func payloadCommand(e Env, what string) *cobra.Command {
	var name, output string
	var policies []string
	cmd := &cobra.Command{
		Use:     what + " --output FILE.svg",
		Short:   what + " against payload, for several policies",
		Long:    what + " against payload, for several policies" + pictureHelp,
		Example: "  trapeze plot " + what + " --profile p6-natoma --output " + what + ".svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPolicies("--policies", policies...); err != nil {
				return err
			}
			p, err := loadProfile("--profile", name)
			if err != nil {
				return err
			}
			draw, payloads := report.Latencies, curvePayloads
			if what == "bandwidth" {
				draw, payloads = report.Bandwidths, widePayloads
			}
			svg, err := draw(cmd.Context(), p, policies, payloads)
			if err != nil {
				return err
			}
			return writeResult(e, cmd, output, svg)
		},
	}
	cmd.Flags().StringVar(&name, "profile", defaultProfile, "platform by name, or a TOML file")
	cmd.Flags().StringSliceVar(&policies, "policies", report.Compared, "delivery policies")
	outputFlag(cmd, &output)
	return cmd
}

func reportCommand(e Env) *cobra.Command {
	var names []string
	var file, output string
	cmd := &cobra.Command{
		Use:   "report --output FILE.html",
		Short: "One self-contained HTML page with all pictures, and published figures beside computed ones",
		Long:  "One self-contained HTML page with all pictures, and published figures beside computed ones" + pictureHelp,
		Example: `  trapeze plot report --published published.csv --output report.html
  trapeze plot report --profiles p6-natoma,pcie4-x16-100g --output report.html`,
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
			return writeResult(e, cmd, output, page)
		},
	}
	cmd.Flags().StringSliceVar(&names, "profiles", []string{defaultProfile, "alcor"}, "platforms, names or TOML files")
	cmd.Flags().StringVar(&file, "published", "", "table of published figures, CSV, to show beside the computed ones")
	outputFlag(cmd, &output)
	return cmd
}
