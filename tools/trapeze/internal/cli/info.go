package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/mqniccmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
	"github.com/trapeze-nic/trapeze/vfio"
)

func (p *program) info() *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   "info",
		Short: "What a NIC is, how it is, and what it has counted",
		Long: `Open a NIC and show its identity, limits, features, BARs, register blocks,
health, delivery policy, control program and counters. If a process of this host has the
NIC at that address open, that process is asked. Else this command opens the NIC, which
resets it.

` + keys.Of(infoReport{}) + `
Of a Corundum NIC it shows what 'trapeze mqnic dump' does.`,
		Example: `  trapeze info
  trapeze info --device 'emu:?wire=udp://127.0.0.1:9000' --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return p.runInfo(ctx, device) }),
	}
	c.Flags().StringVar(&device, "device", "emu:", "address of the NIC")
	return c
}

// infoReport is what info --json prints.
type infoReport struct {
	telemetry.Report
	Owner *telemetrycmd.Owner `json:"owner" help:"the process that was asked, null if the NIC was opened for this"`
}

// runInfo asks the process that has the NIC, or else the NIC.
func (p *program) runInfo(ctx context.Context, address string) error {
	if known, owner := telemetrycmd.Inspect(ctx, address); known != nil {
		r := infoReport{*known, owner}
		return p.Print(r, r.print)
	}
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	// Of other NICs the drivers tell.
	if other, ok, err := mqniccmd.Look(dev); err != nil {
		return &command.DeviceError{Err: err}
	} else if ok {
		return p.Print(other, other.Print)
	}
	var r infoReport
	if r.Report, err = inspect(ctx, dev); err != nil {
		return err
	}
	return p.Print(r, r.print)
}

// inspect takes a device and reads all there is to know.
func inspect(ctx context.Context, dev vfio.Device) (r telemetry.Report, err error) {
	// The NIC owns the device from here on, also if New fails.
	nic, err := driver.New(ctx, dev, driver.Options{Logger: command.Logger(ctx, command.Quiet)})
	if err != nil {
		return r, &command.DeviceError{Err: err}
	}
	defer func() {
		if cerr := nic.Close(); err == nil {
			err = cerr
		}
	}()
	return nic.Report(ctx)
}
