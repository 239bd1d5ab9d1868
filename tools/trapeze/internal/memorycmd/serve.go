package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// serveReport is what serve --json prints when it ends.
type serveReport struct {
	Server string             `json:"server" help:"MAC/NAME"`
	Lent   lent               `json:"lent"`
	Counts netmem.ServerStats `json:"counts"`
}

type lent struct {
	Page     int   `json:"page_bytes"`
	Span     int64 `json:"span_bytes" help:"how far addresses reach"`
	Capacity int64 `json:"capacity_bytes"`
	ReadOnly bool  `json:"read_only"`
	File     bool  `json:"file"`
}

type serveFlags struct {
	device, file, name string
	publish, names     string
	lease              time.Duration
	size, span, page   option.Bytes
	readOnly           bool
}

func (x *commands) serve() *cobra.Command {
	f := serveFlags{page: netmem.DefaultPage}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Lend memory or a file to other machines",
		Long: `Lend memory, or a file, by pages, until it is interrupted; then it ends with exit
code 0. Any number of clients use it at the same time, as far as the memory of the NIC
goes. Memory is taken from the system at once, and what was written to it is gone when
serve ends; a file stays.

Several servers that hold copies for each other, or share a range between them, have the
same --page and --span. With --publish the server is a member of a pool that takes its servers by
name, see --pool of 'trapeze memory map'. When its lease has ended it refuses pages, as
others go on without it then, and publishes the name again. Sizes are in bytes, or as in 64K, 512M and 2G.

` + keys.Of(serveReport{}),
		Example: `  trapeze memory serve --device 'emu:?wire=udp://127.0.0.1:9000' --size 1G
  trapeze memory serve --device eth:pci:0000:03:00.0 --size 16G --page 64K --name a
  trapeze memory serve --device eth:eth0 --size 16G --publish memory --names /shared/names
  trapeze memory serve --device 'emu:?wire=shm:/run/memory' --file data.bin --read-only`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return x.runServe(ctx, f) }),
	}
	c.Flags().StringVar(&f.device, "device", "", "address of the NIC to use")
	c.Flags().Var(&f.size, "size", "how much memory to lend; of a file, how much of it (default all)")
	c.Flags().StringVar(&f.file, "file", "", "lend this file instead of memory")
	c.Flags().Var(&f.page, "page", "size of a page, a power of two from 4K to 64K")
	c.Flags().Var(&f.span, "span", "how far addresses reach (default the size)")
	c.Flags().StringVar(&f.name, "name", netmem.DefaultName, "what clients call the server")
	c.Flags().StringVar(&f.publish, "publish", "", "enter the server under this name (default none)")
	c.Flags().StringVar(&f.names, "names", "", "file of names in which it is entered")
	c.Flags().DurationVar(&f.lease, "lease", 10*time.Second, "how long the name holds after the server is gone")
	c.Flags().BoolVar(&f.readOnly, "read-only", false, "refuse writes")
	return c
}

func (x *commands) runServe(ctx context.Context, f serveFlags) (err error) {
	switch {
	case f.size == 0 && f.file == "":
		return &option.Error{Option: "--size", Allowed: "how much memory to lend, as in 1G; or a --file"}
	case f.file == "" && f.page > 0 && f.size%f.page != 0:
		return &option.Error{Option: "--size", Value: f.size.String(), Allowed: "whole pages: a multiple of " + f.page.String()}
	case len(f.name) > via.MaxDiscriminator:
		return &option.Error{Option: "--name", Value: f.name, Allowed: fmt.Sprintf("1 to %d bytes", via.MaxDiscriminator)}
	}
	if (f.publish == "") != (f.names == "") {
		return &option.Error{Option: "--publish", Value: f.publish, Allowed: "a name, together with --names FILE"}
	}
	if f.lease < via.LeastLease || f.lease > via.MostLease {
		return &option.Error{Option: "--lease", Value: f.lease.String(), Allowed: fmt.Sprintf("%v to %v", via.LeastLease, via.MostLease)}
	}
	if err := peer.CheckDevice(f.device); err != nil {
		return err
	}
	o := netmem.ServerOptions{Name: f.name, Page: int(f.page), Size: int64(f.size), Span: int64(f.span), ReadOnly: f.readOnly}
	if f.file != "" {
		flags := os.O_RDWR
		if f.readOnly {
			flags = os.O_RDONLY
		}
		if o.File, err = os.OpenFile(f.file, flags, 0); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.File.Close()) }()
	}
	return with(ctx, f.device, func(nic *via.NIC) error {
		s, err := netmem.NewServer(ctx, nic, o)
		if errors.Is(err, netmem.ErrOption) {
			return option.Mark(err)
		}
		if err != nil {
			return err
		}
		info := lent{Page: s.Page(), Span: s.Span(), Capacity: int64(s.Stats().Capacity), ReadOnly: f.readOnly, File: f.file != ""}
		x.Note("lending %s by pages of %s as %v", option.Bytes(info.Capacity), option.Bytes(info.Page), s.Address())
		withdraw := func() error { return nil }
		if f.publish != "" {
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
func (x *commands) publish(ctx context.Context, s *netmem.Server, f serveFlags) (withdraw func() error, err error) {
	publish := func() (*via.Publication, error) {
		return via.FileNames(f.names).Publish(ctx, f.publish, s.Address(), f.lease)
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
			x.Note("the lease of %s has ended: no page is served until it is published again", f.publish)
			for again, err := publish(); ; again, err = publish() {
				if err == nil {
					p = again
					break
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(f.lease / 3):
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
