package fwcmd

import (
	"context"
	"io"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// statusReport is what status, rollback and unload print with --json.
type statusReport struct {
	Device  string            `json:"device"`
	Backend string            `json:"backend"`
	Program telemetry.Program `json:"program"`
}

func (x *commands) status(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
		return nic.ProgramStatus()
	})
}

func (x *commands) rollback(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(ctx context.Context, nic *driver.NIC, o load.Options) (load.Status, error) {
		return nic.RollBackProgram(ctx, o)
	})
}

func (x *commands) unload(ctx context.Context, f *deviceFlags, _ []string) error {
	return x.control(ctx, f, func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
		return nic.UnloadProgram()
	})
}

// control does something with the program of a NIC, and shows its status then.
func (x *commands) control(ctx context.Context, f *deviceFlags, do func(context.Context, *driver.NIC, load.Options) (load.Status, error)) error {
	var r statusReport
	if err := x.with(ctx, f, nil, func(ctx context.Context, nic *driver.NIC) error {
		s, err := do(ctx, nic, f.loadOptions())
		r = statusReport{nic.Address(), nic.Backend(), s.Describe()}
		return err
	}); err != nil {
		return err
	}
	return x.Print(r, r.print)
}

func (r *statusReport) print(w io.Writer) error {
	if err := table(w, append([]string{row("device", r.Device+" ("+r.Backend+")")}, programLines(&r.Program)...)...); err != nil {
		return err
	}
	return table(w, programHooks(&r.Program)...)
}
