package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers" // their Dump
	"github.com/trapeze-nic/trapeze/vfio"
)

// dumpReport is the JSON output of info for a NIC of others whose driver tells of it.
type dumpReport struct {
	Address string           `json:"address"`
	Driver  string           `json:"driver" help:"of a Corundum NIC"`
	Tables  []ethernet.Table `json:"tables" help:"of a Corundum NIC"`
}

// dumped asks the driver of a device for what it tells, and closes it. It returns nil, and the device is
// the caller's, if there is no such driver.
func dumped(dev vfio.Device) (*dumpReport, error) {
	id, err := vfio.ReadConfig(dev)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	for _, d := range ethernet.Drivers() {
		for _, m := range d.Models {
			if m.Vendor == id.Vendor && m.Device == id.Device && d.Dump != nil {
				r := &dumpReport{Address: dev.Info().Address, Driver: d.Name}
				r.Tables, err = d.Dump(dev)
				return r, err
			}
		}
	}
	return nil, nil
}

// print writes the tables for people to read.
func (r *dumpReport) print(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range r.Tables {
		fmt.Fprintf(columns, "%s\n", t.Name)
		for _, cells := range append([][]string{t.Columns}, t.Rows...) {
			fmt.Fprintf(columns, "  %s\n", strings.TrimRight(strings.Join(cells, "\t"), "\t"))
		}
	}
	return columns.Flush()
}
