package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// serveReport is the JSON output of serve when it ends.
type serveReport struct {
	Server string             `json:"server" help:"MAC/NAME"`
	Lent   netmem.ServerInfo  `json:"lent"`
	Counts netmem.ServerStats `json:"counts"`
}

type serveFlags struct {
	Device   string       `flag:"device" help:"address of the NIC to use"`
	Size     option.Bytes `flag:"size" range:"1.." required:"how much memory to lend, as in 1G" help:"how much memory to lend, as in 1G"`
	Page     option.Bytes `flag:"page" default:"{page}" help:"size of a page, a power of two from 4K to 64K"`
	Span     option.Bytes `flag:"span" help:"how far addresses reach (default the size)"`
	Name     string       `flag:"name" default:"{server}" help:"what clients call the server"`
	ReadOnly bool         `flag:"read-only" help:"refuse writes"`
}

func (x *commands) serve(ctx context.Context, f *serveFlags, _ []string) error {
	switch {
	case f.Page > 0 && f.Size%f.Page != 0:
		return &option.Error{Option: "--size", Value: f.Size.String(), Allowed: "whole pages: a multiple of " + f.Page.String()}
	case len(f.Name) > via.MaxDiscriminator:
		return &option.Error{Option: "--name", Value: f.Name, Allowed: fmt.Sprintf("1 to %d bytes", via.MaxDiscriminator)}
	}
	o := netmem.ServerOptions{Name: f.Name, Page: int(f.Page), Size: int64(f.Size), Span: int64(f.Span), ReadOnly: f.ReadOnly}
	return with(ctx, f.Device, func(nic *via.NIC) error {
		s, err := netmem.NewServer(ctx, nic, o)
		if errors.Is(err, netmem.ErrOption) {
			return option.Mark(err)
		}
		if err != nil {
			return err
		}
		info := netmem.ServerInfo{Page: s.Page(), Span: s.Span(), Capacity: int64(s.Stats().Capacity), ReadOnly: f.ReadOnly}
		x.Note("lending %s by pages of %s as %v", option.Bytes(info.Capacity), option.Bytes(info.Page), s.Address())
		x.watch(ctx, s)
		stats := s.Stats()
		err = errors.Join(s.Err(), s.Close())
		r := serveReport{Server: s.Address().String(), Lent: info, Counts: stats}
		if err == nil {
			err = x.Report(r)
		}
		return err
	})
}

// watch shows what the server does each second, until ctx ends or the server does.
func (x *commands) watch(ctx context.Context, s *netmem.Server) {
	quiet := x.Style() == progress.None
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := s.Stats(); ; {
		select {
		case <-ctx.Done():
			return
		case <-s.Done():
			return
		case <-tick.C:
		}
		now := s.Stats()
		if quiet || now == before {
			continue
		}
		fmt.Fprintf(x.Stderr, "%d clients, %.1f MB/s fetched, %.1f MB/s written, %s stored\n",
			now.Clients, float64(now.BytesOut-before.BytesOut)/1e6, float64(now.BytesIn-before.BytesIn)/1e6, option.Bytes(now.Stored))
		before = now
	}
}
