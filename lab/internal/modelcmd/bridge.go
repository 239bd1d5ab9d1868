package modelcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
)

// bridgeFlags say who meets at a bridge.
type bridgeFlags struct {
	Platform string              `flag:"platform" default:"natoma" help:"platform with a bridge by name, or a TOML file"`
	DMA      coherence.Direction `flag:"dma" default:"send" help:"what the NIC does: send (it reads host memory), receive (it writes it) or none"`
	Programs []string            `flag:"programs" split:"comma" default:"copy,pio-write,pio-read" help:"what the processor does: copy, pio-write, pio-read or none"`
	Bytes    int                 `flag:"bytes" default:"8192" help:"bytes of each DMA transfer"`
}

// options checks the flags and loads the platform.
func (f *bridgeFlags) options() (o report.Bridge, err error) {
	if len(f.Programs) == 0 || len(f.Programs) > len(coherence.Programs) {
		return o, usage("--programs", fmt.Sprint(f.Programs), fmt.Sprintf("1 to %d of them", len(coherence.Programs)))
	}
	o = report.Bridge{DMA: f.DMA, Bytes: f.Bytes}
	for _, p := range f.Programs {
		o.Programs = append(o.Programs, coherence.Program(p))
	}
	o.System, err = builtIn("--platform", f.Platform, profile.Bridges)
	return o, err
}

// bridgeError says of an option that the model refuses which flag it was.
func bridgeError(err error) error { return flagError(err, map[string]string{"program": "programs"}) }

func (x *commands) bridge(ctx context.Context, f *bridgeFlags, _ []string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	all, err := o.Run(ctx)
	if err != nil {
		return bridgeError(err)
	}
	return x.Print(all, func(w io.Writer) error { return table.Write(w, all) })
}

// draw draws the rates of a program and of DMA, alone and together.
func (f *bridgeFlags) draw(ctx context.Context) ([]byte, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	svg, err := o.Draw(ctx)
	return svg, bridgeError(err)
}
