package cli

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// infoReport is the JSON output of info.
type infoReport struct {
	telemetry.Report
	Owner *telemetrycmd.Owner `json:"owner" help:"the process that was asked, null if the NIC was opened for this"`
}

// info asks the process that has the NIC, or else the NIC.
type infoFlags struct {
	Device string `flag:"device" default:"emu:" help:"address of the NIC"`
}

func (p *program) info(ctx context.Context, f *infoFlags, _ []string) error {
	if known, owner := telemetrycmd.Inspect(ctx, f.Device); known != nil {
		r := infoReport{*known, owner}
		return p.Report(r)
	}
	dev, err := vfio.Open(ctx, f.Device)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	var r infoReport
	if r.Report, err = inspect(ctx, dev); err != nil {
		return err
	}
	return p.Report(r)
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
