package memorycmd

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// pagerFlags say where the pages of 'memory map' come from.
type pagerFlags struct {
	poolFlags
	shareFlags
}

// runPager is the command that 'memory map' starts itself with.
func runPager(ctx context.Context, f *pagerFlags, _ []string) error {
	return netmem.RunPager(ctx, func(ctx context.Context) (netmem.PageSource, error) { return f.source(ctx) })
}

// command is how this program is started as pager with the same flags.
func (f *pagerFlags) command() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []string{self, "memory", "pager", "--device", f.Device, "--copies", strconv.Itoa(f.Copies), "--timeout", f.Timeout.String()}
	if f.Witness != "" {
		list = append(list, "--witness", f.Witness)
	}
	if f.Pool != "" {
		list = append(list, "--pool", f.Pool, "--names", f.Names)
	}
	for _, s := range f.Servers {
		list = append(list, "--server", s)
	}
	for _, s := range f.Clients {
		list = append(list, "--client", s)
	}
	if len(f.Clients) > 0 {
		list = append(list, "--name", f.Name, "--cache", strconv.FormatInt(int64(f.Cache), 10), "--lend", strconv.FormatInt(int64(f.Lend), 10))
	}
	return list, nil
}

// source is what servers lend together with the NIC by which it comes.
type source struct {
	netmem.PageSource
	close func() error
}

func (f *pagerFlags) source(ctx context.Context) (*source, error) {
	servers, err := f.addresses()
	if err != nil {
		return nil, err
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	if o.Cooperation, err = f.cooperation(); err != nil {
		return nil, err
	}
	nic, err := peer.Open(ctx, f.Device, via.Options{})
	if err != nil {
		return nil, err
	}
	f.useNames(nic)
	if o.Cooperation == nil {
		s, err := netmem.OpenSource(ctx, nic, servers, o)
		if err != nil {
			return nil, errors.Join(err, nic.Close()) // the mapper explains it
		}
		return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), nic.Close()) }}, nil
	}
	o.Cache, o.ReadAhead = int64(f.Cache), -1 // the pager reads ahead itself
	c, err := netmem.Open(ctx, nic, servers, o)
	if err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	s := c.Source()
	return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), c.Close(), nic.Close()) }}, nil
}

func (s *source) Close() error { return s.close() }
