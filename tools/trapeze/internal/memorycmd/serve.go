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
same --page and --span. Sizes are in bytes, or as in 64K, 512M and 2G.

` + keys.Of(serveReport{}),
		Example: `  trapeze memory serve --device 'emu:?wire=udp://127.0.0.1:9000' --size 1G
  trapeze memory serve --device eth:pci:0000:03:00.0 --size 16G --page 64K --name a
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
		x.watch(ctx, s)
		stats := s.Stats()
		err = errors.Join(s.Err(), s.Close())
		r := serveReport{Server: s.Address().String(), Lent: info, Counts: stats}
		if err == nil {
			err = x.Print(r, func(w io.Writer) error { return printCounts(w, r.Counts) })
		}
		return err
	})
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
