package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// serveReport is the JSON output of serve when it ends.
type serveReport struct {
	Server string             `json:"server" help:"MAC/NAME"`
	Lent   netmem.ServerInfo  `json:"lent"`
	Counts netmem.ServerStats `json:"counts"`
}

type serveFlags struct {
	Device   string        `flag:"device" help:"address of the NIC to use"`
	Size     option.Bytes  `flag:"size" help:"how much memory to lend, as in 1G"`
	Page     option.Bytes  `flag:"page" default:"{page}" help:"size of a page, a power of two from 4K to 64K"`
	Span     option.Bytes  `flag:"span" help:"how far addresses reach (default the size)"`
	Name     string        `flag:"name" default:"{server}" help:"what clients call the server"`
	Publish  string        `flag:"publish" help:"enter the server under this name (default none)"`
	Names    string        `flag:"names" help:"file of names in which it is entered"`
	Lease    time.Duration `flag:"lease" default:"10s" help:"how long the name holds after the server is gone"`
	ReadOnly bool          `flag:"read-only" help:"refuse writes"`
}

func (x *commands) serve(ctx context.Context, f *serveFlags, _ []string) error {
	switch {
	case f.Size == 0:
		return &option.Error{Option: "--size", Allowed: "how much memory to lend, as in 1G"}
	case f.Page > 0 && f.Size%f.Page != 0:
		return &option.Error{Option: "--size", Value: f.Size.String(), Allowed: "whole pages: a multiple of " + f.Page.String()}
	case len(f.Name) > via.MaxDiscriminator:
		return &option.Error{Option: "--name", Value: f.Name, Allowed: fmt.Sprintf("1 to %d bytes", via.MaxDiscriminator)}
	}
	if (f.Publish == "") != (f.Names == "") {
		return &option.Error{Option: "--publish", Value: f.Publish, Allowed: "a name, together with --names FILE"}
	}
	if f.Lease < via.LeastLease || f.Lease > via.MostLease {
		return &option.Error{Option: "--lease", Value: f.Lease.String(), Allowed: fmt.Sprintf("%v to %v", via.LeastLease, via.MostLease)}
	}
	if err := peer.CheckDevice(f.Device); err != nil {
		return err
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
		withdraw := func() error { return nil }
		if f.Publish != "" {
			if withdraw, err = x.publish(ctx, s, f); err != nil {
				return errors.Join(err, s.Close())
			}
		}
		x.watch(ctx, s)
		stats := s.Stats()
		err = errors.Join(s.Err(), s.Close(), withdraw())
		r := serveReport{Server: s.Address().String(), Lent: info, Counts: stats}
		if err == nil {
			err = x.Print(r, func(w io.Writer) error { return printCounts(w, r.Counts) })
		}
		return err
	})
}

// publish keeps a server's name until ctx ends, and has it answer for as long as it has the name.
func (x *commands) publish(ctx context.Context, s *netmem.Server, f *serveFlags) (withdraw func() error, err error) {
	publish := func() (*via.Publication, error) {
		return via.FileNames(f.Names).Publish(ctx, f.Publish, s.Address(), f.Lease)
	}
	p, err := publish()
	if err != nil {
		return nil, err
	}
	s.Fence(p.Lost())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.Done():
				return
			case <-p.Lost():
			}
			x.Note("the lease of %s has ended: no page is served until it is published again", f.Publish)
			for renewed, err := publish(); ; renewed, err = publish() {
				if err == nil {
					p = renewed
					break
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(f.Lease / 3):
				}
			}
			s.Fence(p.Lost())
		}
	}()
	return func() error { <-ended; return p.Withdraw() }, nil
}

// watch shows what the server does each second, until ctx ends or the server does.
func (x *commands) watch(ctx context.Context, s *netmem.Server) {
	style, err := x.Style()
	quiet := err != nil || style == progress.None
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

func printCounts(w io.Writer, c netmem.ServerStats) error {
	_, err := fmt.Fprintf(w, "%d pages fetched, %d written, %d requests refused\n%.1f MB out, %.1f MB in, %s stored, %d clients\n",
		c.Fetches, c.Writes, c.Refused, float64(c.BytesOut)/1e6, float64(c.BytesIn)/1e6, option.Bytes(c.Stored), c.Clients)
	return err
}
