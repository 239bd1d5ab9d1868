package fwcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/keys"
)

// mapReport is what map --json prints.
type mapReport struct {
	Device  string      `json:"device"`
	Image   string      `json:"image"`
	Map     shownMap    `json:"map"`
	Results []mapResult `json:"results"`
}

type mapResult struct {
	Operation string  `json:"operation"`
	Entries   []Entry `json:"entries"`
}

func (x *commands) maps() *cobra.Command {
	var flags deviceFlags
	c := &cobra.Command{
		Use:   "map IMAGE NAME [OPERATION]...",
		Short: "Read and write a map of the program that a NIC runs",
		Long: `Read and write a map of the program that a NIC runs. IMAGE is the image that runs:
it says what the map looks like, and another one is refused.

Operations, done in this order while the program runs: ` + operationHelp + `;
without any, list. KEY and VALUE are hexadecimal, in the order of memory: key 1 of an
array is 01000000. An operation that fails ends the command.

` + resetHelp + `
So rules can be set here before the application starts that they are for. Numbers of
receive queues, which flow-steer wants, exist only while it runs: it sets them itself,
with ProgramMap of package via.

` + keys.Of(mapReport{}),
		Example: `  trapeze fw map --device vfio-user:/run/nic0 image:ipt entries list
  trapeze fw map --device vfio-user:/run/nic0 image:ipt entries set 07000000 0100000003000000 get 07000000`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			operations, err := parseOperations(args[2:])
			if err != nil {
				return err
			}
			img, err := Open(args[0])
			if err != nil {
				return err
			}
			r := mapReport{Image: args[0]}
			if err := x.with(c.Context(), &flags, nil, func(_ context.Context, nic *driver.NIC) error {
				r.Device = nic.Address()
				return r.fill(nic, img, args[1], operations)
			}); err != nil {
				return err
			}
			w := c.OutOrStdout()
			if x.JSON {
				return x.PrintJSON(r)
			}
			for _, result := range r.Results {
				for _, e := range result.Entries {
					if _, err := fmt.Fprintf(w, "%s %s\n", e.Key, e.Value); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	flags.register(c)
	return c
}

// fill does the operations.
func (r *mapReport) fill(nic *driver.NIC, img *Image, name string, operations []operation) error {
	s, err := nic.ProgramStatus()
	if err != nil {
		return err
	}
	m, err := OpenMap(nic, img, name, s)
	if err != nil {
		return err
	}
	if r.Map, err = showMap(m.Spec()); err != nil {
		return err
	}
	for _, o := range operations {
		entries, err := o.do(m)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		if entries == nil {
			entries = []Entry{}
		}
		r.Results = append(r.Results, mapResult{o.name, entries})
	}
	return nil
}
