package memorycmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// statReport is one server in what stat --json prints.
type statReport struct {
	Server      string             `json:"server"`
	Incarnation string             `json:"incarnation,omitempty" help:"in hexadecimal"`
	Pool        string             `json:"pool,omitempty" help:"in hexadecimal"`
	Lent        netmem.ServerInfo  `json:"lent"`
	Counts      netmem.ServerStats `json:"counts"`
	Error       string             `json:"error,omitempty" help:"if it did not answer; lent and counts are zero then"`
}

func (x *commands) stat(ctx context.Context, f *clientFlags, _ []string) error {
	servers, err := f.addresses()
	if err != nil {
		return err
	}
	return with(ctx, f.Device, func(nic *via.NIC) error {
		var list []statReport
		var errs []error
		for i, a := range servers {
			info, err := netmem.Ask(ctx, nic, a, f.Timeout)
			r := statReport{Server: f.Servers[i], Lent: info, Counts: info.Stats}
			if err != nil {
				r.Error = err.Error()
				errs = append(errs, explain(err))
			} else {
				r.Incarnation, r.Pool = fmt.Sprintf("%016x", info.Incarnation), fmt.Sprintf("%016x", info.Pool)
			}
			list = append(list, r)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.Join(append(errs, x.Report(list))...)
	})
}
