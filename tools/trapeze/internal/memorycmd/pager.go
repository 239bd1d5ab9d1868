package memorycmd

import (
	"context"
	"errors"
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
	for _, s := range f.servers {
		list = append(list, "--server", s)
	}
	return list, nil
}

// source is what servers lend together with the NIC by which it comes.
type source struct {
	*netmem.Source
	nic *via.NIC
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
	nic, err := via.Open(ctx, f.device, logged(ctx))
	if err != nil {
		return nil, &command.DeviceError{Err: err}
	}
	s, err := netmem.OpenSource(ctx, nic, servers, o)
	if err != nil {
		return nil, errors.Join(err, nic.Close()) // the mapper explains it
	}
	return &source{s, nic}, nil
}

func (s *source) Close() error { return errors.Join(s.Source.Close(), s.nic.Close()) }
