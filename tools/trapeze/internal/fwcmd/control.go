package fwcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// statusReport is what status, rollback and unload print with --json.
type statusReport struct {
	Device  string            `json:"device"`
	Backend string            `json:"backend"`
	Program telemetry.Program `json:"program"`
}

func (x *commands) status() *cobra.Command {
	return x.control("status", "Show which control program a NIC runs",
		`Show what a NIC's processor runs: name, version and digest of the image, its slot,
and for each hook how often its program was asked, how often it was stopped, and how
many instructions it takes at worst.`,
		func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
			return nic.ProgramStatus()
		})
}

func (x *commands) rollback() *cobra.Command {
	return x.control("rollback", "Have a NIC run the program that it ran before",
		`Have a NIC run the image that it ran before the present one, which stands in the
other slot. If that does not start, the present one runs on. Twice is back again.`,
		func(ctx context.Context, nic *driver.NIC, o load.Options) (load.Status, error) {
			return nic.RollBackProgram(ctx, o)
		})
}

func (x *commands) unload() *cobra.Command {
	return x.control("unload", "Have a NIC forget its control program",
		`Have a NIC do what it has built in. Images stay in their slots.`,
		func(_ context.Context, nic *driver.NIC, _ load.Options) (load.Status, error) {
			return nic.UnloadProgram()
		})
}

// control makes a command that does something with the program of a NIC and shows
// its status then.
func (x *commands) control(name, short, long string, f func(context.Context, *driver.NIC, load.Options) (load.Status, error)) *cobra.Command {
	var flags deviceFlags
	c := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long + "\n\n" + resetHelp + "\n\n" + keys.Of(statusReport{}),
		Example: "  trapeze fw " + name + " --device vfio-user:/run/nic0",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var r statusReport
			if err := x.with(c.Context(), &flags, nil, func(ctx context.Context, nic *driver.NIC) error {
				s, err := f(ctx, nic, flags.loadOptions())
				r = statusReport{nic.Address(), nic.Backend(), s.Describe()}
				return err
			}); err != nil {
				return err
			}
			w := c.OutOrStdout()
			if x.JSON {
				return x.PrintJSON(r)
			}
			if err := table(w, append([]string{row("device", r.Device+" ("+r.Backend+")")}, programLines(&r.Program)...)...); err != nil {
				return err
			}
			return table(w, programHooks(&r.Program)...)
		},
	}
	flags.register(c)
	return c
}
