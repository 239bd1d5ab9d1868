package memorycmd

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// pager is the command that 'memory map' starts itself with.
func (x *commands) pager() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:    "pager",
		Short:  "Bring the pages of 'trapeze memory map', which starts it",
		Long:   "Bring the pages of 'trapeze memory map', which starts it. It is not for people.\n\nJSON keys: none.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error {
			return netmem.RunPager(ctx, func(ctx context.Context) (netmem.PageSource, error) { return f.source(ctx) })
		}),
	}
	f.register(c, "")
	f.registerCopies(c)
	f.registerClients(c)
	return c
}

// command is how this program is started as pager with the same flags.
func (f *clientFlags) command() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []string{self, "memory", "pager", "--device", f.device, "--copies", strconv.Itoa(f.copies), "--timeout", f.timeout.String()}
	if f.witness != "" {
		list = append(list, "--witness", f.witness)
	}
	if f.pool != "" {
		list = append(list, "--pool", f.pool, "--names", f.names)
	}
	for _, s := range f.servers {
		list = append(list, "--server", s)
	}
	for _, s := range f.clients {
		list = append(list, "--client", s)
	}
	if len(f.clients) > 0 {
		list = append(list, "--name", f.name, "--cache", strconv.FormatInt(int64(f.cache), 10), "--lend", strconv.FormatInt(int64(f.lend), 10))
	}
	return list, nil
}

// source is what servers lend together with the NIC by which it comes.
type source struct {
	netmem.PageSource
	close func() error
}

func (f *clientFlags) source(ctx context.Context) (*source, error) {
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
	nic, err := via.Open(ctx, f.device, logged(ctx))
	if err != nil {
		return nil, &command.DeviceError{Err: err}
	}
	f.useNames(nic)
	if o.Cooperation == nil {
		s, err := netmem.OpenSource(ctx, nic, servers, o)
		if err != nil {
			return nil, errors.Join(err, nic.Close()) // the mapper explains it
		}
		return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), nic.Close()) }}, nil
	}
	o.Cache, o.ReadAhead = int64(f.cache), -1 // the pager reads ahead itself
	c, err := netmem.Open(ctx, nic, servers, o)
	if err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	s := c.Source()
	return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), c.Close(), nic.Close()) }}, nil
}

func (s *source) Close() error { return s.close() }
