package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/telemetrycmd"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
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
		return p.Print(r, r.print)
	}
	dev, err := vfio.Open(ctx, f.Device)
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	// Of other NICs the drivers tell.
	if other, err := dumped(dev); err != nil {
		return &command.DeviceError{Err: err}
	} else if other != nil {
		return p.Print(other, other.print)
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

// print prints a report for people. Counters that are zero are left out.
func (r *infoReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(name, format string, a ...any) { fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, a...)...) }
	row("device", "%s (%s, PCI %s)", r.Address, r.Backend, r.PCI)
	if o := r.Owner; o != nil {
		row("owner", "PID %d (%s), of user %s, was asked", o.PID, o.Program, o.User)
	}
	row("version", "%s", r.Version)
	row("MAC", "%s", r.MAC)
	row("MTU", "%d B", r.MTU)
	row("features", "%s", strings.Join(r.Features, ", "))
	row("health", "%s", describeHealth(r.Health))
	row("limits", "%d endpoints, %d CQs of %d, queues of %d, %d segments, messages up to %s",
		r.Limits.Endpoints, r.Limits.CQs, r.Limits.CQEntries, r.Limits.QueueDepth, r.Limits.Segments, units.Size(r.Limits.Transfer))
	row("memory", "%d regions, %d protection tags, %s SRAM", r.Limits.Regions, r.Limits.Ptags, units.Size(r.SRAM))
	if r.SRAMFree != nil {
		row("SRAM", "%s in use for endpoints, %s free", units.Size(*r.SRAMUsed), units.Size(*r.SRAMFree))
	}
	row("interrupts", "%d vectors in use", r.Vectors)
	for _, b := range r.BARs {
		how := "trapped"
		if b.Mappable {
			how = "mappable"
		}
		row(fmt.Sprintf("BAR%d", b.Index), "%s, %s", units.Size(b.Bytes), how)
	}
	for _, b := range r.Blocks {
		row("block", "%#06x  %s %s", b.Offset, b.Name, b.Version)
	}
	row("clock", "%.1f us", r.ClockUS)
	row("policy", "%s", describeDMA(r.DMA))
	if r.Channels.Used() {
		for _, line := range r.Channels.Lines() {
			row("channels", "%s", line)
		}
	}
	row("program", "%v", r.Program)
	if r.Program != nil {
		if r.Program.Digest != "" {
			row("program", "digest %s", r.Program.Digest)
		}
		for _, h := range r.Program.Active() {
			row("hook", "%v", h)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
		if n := r.Counters[name]; n != 0 {
			row("counter", "%s %d", name, n)
		}
	}
	return w.Flush()
}

func describeDMA(d *telemetry.DMA) string {
	if d == nil {
		return "the device's own; it is too old to say which"
	}
	log := "no DMA log"
	if d.Log.Enabled {
		log = fmt.Sprintf("DMA log of %d records, %d lost", d.Log.Records, d.Log.Lost)
	}
	return describePolicy(d.Policy) + "; " + log
}

func describeHealth(h telemetry.Health) string {
	s := "not ready"
	switch {
	case h.Fatal:
		s = fmt.Sprintf("fatal fault %d (detail %#x)", h.Fault, h.FaultDetail)
	case h.Ready:
		s = "ready"
	}
	link := "link down"
	if h.LinkUp {
		link = "link up"
	}
	return fmt.Sprintf("%s, %s, %d resets, %d events lost", s, link, h.Resets, h.EventsLost)
}

// inspectChannels returns nil for a device that is too old to say. It is asked also when ctx has
// ended, for the last report.
func inspectChannels(ctx context.Context, nic *via.NIC) (*telemetry.Channels, error) {
	r, err := nic.Report(context.WithoutCancel(ctx))
	return r.Channels, err
}

// printChannels has the lines below those of another report, if there is anything to say.
func printChannels(w io.Writer, c *telemetry.Channels) (err error) {
	if c.Used() {
		for _, line := range c.Lines() {
			_, err = fmt.Fprintf(w, "NIC: %s\n", line)
		}
	}
	return err
}
