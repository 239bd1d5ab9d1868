// Package mqniccmd holds the command mqnic, which shows what a Corundum NIC is and has.
package mqniccmd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Report is printed with --json.
type Report struct {
	Address string           `json:"address"`
	Driver  string           `json:"driver"`
	Tables  []ethernet.Table `json:"tables"`
}

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

type flags struct {
	Device string `flag:"device" help:"address of the NIC"`
}

// Command makes the command.
func Command(e *command.Env) *cobra.Command {
	// show shows the table of a name, or all tables.
	show := func(table string) func(context.Context, *flags, []string) error {
		return func(ctx context.Context, f *flags, _ []string) error {
			if f.Device == "" {
				return &option.Error{Option: "--device", Allowed: "the address of a NIC, as in pci:0000:03:00.0 or vfio-user:PATH"}
			}
			r, err := dump(ctx, f.Device)
			if err != nil {
				return &command.DeviceError{Err: err}
			}
			if table != "" {
				r.keep(table)
			}
			return e.Print(r, r.Print)
		}
	}
	return cmdtable.New(help, nil).Family("mqnic",
		cmdtable.Does("mqnic dump", show(""), Report{}), cmdtable.Does("mqnic flash", show("flash"), Report{}))
}

func dump(ctx context.Context, address string) (Report, error) {
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return Report{}, err
	}
	r, ok, err := Look(dev)
	if err == nil && !ok {
		err = errors.Join(fmt.Errorf("%s: %w of which there is more to show than 'trapeze info' does", address, ethernet.ErrUnsupportedDevice), dev.Close())
	}
	return r, err
}

// Look dumps a device whose driver can do that, and closes it. ok is false, and the device the
// caller's, if there is no such driver.
func Look(dev vfio.Device) (r Report, ok bool, err error) {
	id, err := vfio.ReadConfig(dev)
	if err != nil {
		return r, false, errors.Join(err, dev.Close())
	}
	for _, d := range ethernet.Drivers() {
		for _, m := range d.Models {
			if m.Vendor == id.Vendor && m.Device == id.Device && d.Dump != nil {
				r.Address, r.Driver = dev.Info().Address, d.Name
				r.Tables, err = d.Dump(dev)
				return r, true, err
			}
		}
	}
	return r, false, nil
}

// keep leaves the table of a name.
func (r *Report) keep(name string) {
	for _, t := range r.Tables {
		if t.Name == name {
			r.Tables = []ethernet.Table{t}
			return
		}
	}
	r.Tables = []ethernet.Table{}
}

// Print writes the tables for people to read.
func (r Report) Print(w io.Writer) error {
	for i, t := range r.Tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, t.Name)
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, cells := range append([][]string{t.Columns}, t.Rows...) {
			fmt.Fprintf(columns, "  %s\n", strings.TrimRight(strings.Join(cells, "\t"), "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	return nil
}
