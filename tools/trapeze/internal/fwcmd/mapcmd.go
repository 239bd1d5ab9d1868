package fwcmd

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/driver"
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

func (x *commands) maps(ctx context.Context, f *deviceFlags, args []string) error {
	operations, err := parseOperations(args[2:])
	if err != nil {
		return err
	}
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	r := mapReport{Image: args[0]}
	if err := x.with(ctx, f, nil, func(_ context.Context, nic *driver.NIC) error {
		r.Device = nic.Address()
		return r.fill(nic, img, args[1], operations)
	}); err != nil {
		return err
	}
	w := x.Stdout
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
