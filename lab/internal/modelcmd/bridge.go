package modelcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// bridgeFlags say who meets at a bridge.
type bridgeFlags struct {
	platform, dma string
	programs      []string
	bytes         int
}

func (f *bridgeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.platform, "platform", "natoma", "platform with a bridge by name, or a TOML file")
	flags.StringVar(&f.dma, "dma", string(coherence.SendDMA), "what the NIC does: send (it reads host memory), receive (it writes it) or none")
	flags.StringSliceVar(&f.programs, "programs", []string{"copy", "pio-write", "pio-read"}, "what the processor does: copy, pio-write, pio-read or none")
	flags.IntVar(&f.bytes, "bytes", defaultPayload, "bytes of each DMA transfer")
}

// bridge checks the flags and loads the platform.
func (f *bridgeFlags) bridge() (o report.Bridge, err error) {
	if len(f.programs) == 0 || len(f.programs) > len(coherence.Programs) {
		return o, usage("--programs", fmt.Sprint(f.programs), fmt.Sprintf("1 to %d of them", len(coherence.Programs)))
	}
	o = report.Bridge{DMA: coherence.Direction(f.dma), Bytes: f.bytes}
	for _, p := range f.programs {
		o.Programs = append(o.Programs, coherence.Program(p))
	}
	o.System, err = builtIn("--platform", f.platform, profile.Bridges)
	return o, err
}

// bridgeError says of an option that the model refuses which flag it was.
func bridgeError(err error) error { return flagError(err, map[string]string{"program": "programs"}) }

func bridgeCommand(e *command.Env) *cobra.Command {
	var f bridgeFlags
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Compute what block copies and programmed I/O do to DMA at a bridge, and DMA to them",
		Long: `Has the processor and the NIC meet at the bridge between memory and PCI, in virtual time:
who wins, and who starves. The processor copies blocks by way of its caches, or moves words
between them and the NIC. The NIC has one DMA transfer after the other. Each is
computed alone, and then both together.

A copy meets DMA on the memory bus, where the bridge's rule decides: the processor first, DMA
first, or in turn. Programmed I/O meets it on PCI, where a burst of DMA ends first.

Platforms: natoma, where the processor wins, and alcor-cia, where DMA does; or a TOML file
(trapeze-lab model profiles natoma prints one to start from).

` + keys.Array(report.Met{}),
		Example: `  trapeze-lab model bridge --platform natoma
  trapeze-lab model bridge --platform alcor-cia --programs copy --dma receive --json
  trapeze-lab model bridge --platform alcor-cia --programs pio-write,pio-read --dma none`,
		Args: cobra.NoArgs,
		RunE: command.Show(e, func(ctx context.Context) ([]report.Met, error) {
			o, err := f.bridge()
			if err != nil {
				return nil, err
			}
			all, err := o.Run(ctx)
			return all, bridgeError(err)
		}, writeBridge),
	}
	f.register(cmd)
	return cmd
}

func writeBridge(w io.Writer, all []report.Met) error {
	const header = "program\tMB/s alone\ttogether\tless %\tDMA\tMB/s alone\ttogether\tless %\ttransfer us alone\ttogether\t"
	return command.Table(w, tabwriter.AlignRight, header, all, func(m report.Met) string {
		p, d := m.Processor, m.DMA
		return fmt.Sprintf("%s\t%.1f\t%.1f\t%.1f\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t", m.Program, p.Alone, p.Together, p.Less, m.With,
			d.Alone, d.Together, d.Less, m.TransferAlone.Microseconds(), m.Transfer.Microseconds())
	})
}

// bridgePicture draws the rates of a program and of DMA, alone and together.
func bridgePicture(e *command.Env) *cobra.Command {
	var f bridgeFlags
	cmd := picture(e, "bridge", "Bars of the rates of programs and of DMA at a bridge, alone and together",
		"--platform natoma", func(ctx context.Context) ([]byte, error) {
			o, err := f.bridge()
			if err != nil {
				return nil, err
			}
			svg, err := o.Draw(ctx)
			return svg, bridgeError(err)
		})
	f.register(cmd)
	return cmd
}
