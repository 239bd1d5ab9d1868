// Package memorycmd holds the commands of trapeze that lend and use the memory of other
// machines.
package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// Command returns the command "memory" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	c := &cobra.Command{
		Use:   "memory",
		Short: "The memory of another machine: lend it, and use it by pages",
		Long: `The memory of another machine.

'trapeze memory serve' lends memory, or a file, by pages of 4 to 64 KiB. Clients fetch
pages when they miss them, fetch ahead what is read in sequence, and write back. With
--copies 2 each page is on two servers. While one of them is away its pages can be read, and
writes wait for it; with --witness the others go on without it after the timeout. Programs in
Go use package netmem.

A server is named as [MAC/]NAME: the address of its NIC, which can be left out if no
other NIC on the wire has a server of that name, and the name that serve gave it.

JSON keys: those of 'trapeze help --json'.`,
		Example: `  trapeze memory demo
  trapeze memory serve --device 'emu:?wire=udp://127.0.0.1:9000' --size 1G
  trapeze memory stat --device 'emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9000'
  trapeze memory map --device 'emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9000' --touch 1000
  trapeze memory bench`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.serve(), x.mapped(), x.stat(), x.bench(), x.demo(), x.cooperate(), x.pager())
	return c
}

// commands share what they need.
type commands struct{ *command.Env }

// clientFlags say which servers are used, and how.
type clientFlags struct {
	device  string
	servers []string
	copies  int
	witness string
	pool    string
	names   string
	timeout time.Duration
	// clients, name, cache and lend are of a cooperative cache: none without clients.
	clients     []string
	name        string
	cache, lend option.Bytes
}

func (f *clientFlags) register(c *cobra.Command, device string) {
	c.Flags().StringVar(&f.device, "device", "", "address of the NIC to use"+device)
	c.Flags().StringArrayVar(&f.servers, "server", []string{netmem.DefaultName}, "a server, [MAC/]NAME; give the flag once for each")
	c.Flags().DurationVar(&f.timeout, "timeout", netmem.DefaultTimeout, "how long a server may take for an answer")
}

func (f *clientFlags) registerCopies(c *cobra.Command) {
	c.Flags().IntVar(&f.copies, "copies", 1, "on how many servers each page is")
	c.Flags().StringVar(&f.pool, "pool", "", "in the place of --server: all servers that publish this name, now and later")
	c.Flags().StringVar(&f.names, "names", "", "file of names for --pool (default the DNS)")
	c.Flags().StringVar(&f.witness, "witness", "", "who decides that the pool goes on without a server: file:PATH, or a server that is none of the pool's")
}

// registerClients adds the flags of a cooperative cache.
func (f *clientFlags) registerClients(c *cobra.Command) {
	f.cache = 32 << 20
	c.Flags().StringArrayVar(&f.clients, "client", nil, "a client that lends its cache, [MAC/]NAME; give the flag once for each (default none)")
	c.Flags().StringVar(&f.name, "name", "", "what other clients call this one (default it lends nothing)")
	c.Flags().Var(&f.cache, "cache", "local memory for pages that is shared with them")
	c.Flags().Var(&f.lend, "lend", "how much of it others may use (default all)")
}

// cooperation returns what these flags say; nil without other clients.
func (f *clientFlags) cooperation() (*netmem.Cooperation, error) {
	switch {
	case len(f.clients) == 0 && f.name != "":
		return nil, &option.Error{Option: "--client", Allowed: "the addresses of all clients, also that of this one, with --name"}
	case len(f.clients) == 0:
		return nil, nil
	}
	o := &netmem.Cooperation{Name: f.name, Lend: int64(f.lend)}
	for _, h := range f.clients {
		a, err := parseServer("--client", h)
		if err != nil {
			return nil, err
		}
		o.Hosts = append(o.Hosts, a)
	}
	return o, nil
}

// options are those of a client, with a witness if one is named.
func (f *clientFlags) options() (netmem.Options, error) {
	o := netmem.Options{Copies: f.copies, Timeout: f.timeout}
	switch path, file := strings.CutPrefix(f.witness, "file:"); {
	case f.witness == "":
	case file && path == "":
		return o, &option.Error{Option: "--witness", Value: f.witness, Allowed: "file:PATH, or [MAC/]NAME of a server"}
	case file:
		o.Witness = netmem.WitnessFile(path)
	default:
		a, err := parseServer("--witness", f.witness)
		if err != nil {
			return o, err
		}
		o.Witness = netmem.WitnessServer(a)
	}
	return o, nil
}

// addresses reads the flag --server.
func (f *clientFlags) addresses() (list []string, err error) {
	if f.timeout <= 0 {
		return nil, &option.Error{Option: "--timeout", Value: f.timeout.String(), Allowed: "more than 0, as in 5s"}
	}
	if f.pool != "" {
		if f.copies < 2 {
			return nil, &option.Error{Option: "--copies", Value: fmt.Sprint(f.copies), Allowed: "2 or more with --pool: pages move from one copy to another"}
		}
		return []string{f.pool}, nil
	}
	for _, s := range f.servers {
		a, err := parseServer("--server", s)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// parseServer reads [MAC/]NAME, the value of a flag, and returns it as an address.
func parseServer(flag, s string) (string, error) {
	a := via.Address{MAC: datasheet.Broadcast, Discriminator: s}
	if mac, name, ok := strings.Cut(s, "/"); ok {
		from, err := peer.ParseMAC(mac)
		if err != nil {
			return "", fmt.Errorf("%s %q: %w", flag, s, err)
		}
		a = via.Address{MAC: from, Discriminator: name}
	}
	if n := len(a.Discriminator); n == 0 || n > via.MaxDiscriminator {
		return "", &option.Error{Option: flag, Value: s, Allowed: fmt.Sprintf("[MAC/]NAME with a name of 1 to %d bytes", via.MaxDiscriminator)}
	}
	return a.String(), nil
}

// logged: what happens to a NIC shows in the calls that suffer from it.
func logged(ctx context.Context) via.Options {
	return via.Options{Logger: command.Logger(ctx, command.Quiet)}
}

// with is with, for what flags say about servers.
func (f *clientFlags) with(ctx context.Context, use func(*via.NIC) error) error {
	return with(ctx, f.device, func(nic *via.NIC) error {
		f.useNames(nic)
		return use(nic)
	})
}

// useNames has a NIC look up the pool's name where the flags say.
func (f *clientFlags) useNames(nic *via.NIC) {
	if f.names != "" {
		nic.UseNames(via.FileNames(f.names))
	}
}

// with opens a NIC for use.
func with(ctx context.Context, device string, use func(*via.NIC) error) error {
	if err := peer.CheckDevice(device); err != nil {
		return err
	}
	nic, err := via.Open(ctx, device, logged(ctx))
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	return errors.Join(use(nic), nic.Close())
}

// withPair makes two emulated NICs in this process that are wired to each other.
func withPair(ctx context.Context, use func(near, far *via.NIC) error) (err error) {
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	near, err := via.OpenDevice(ctx, a, logged(ctx))
	if err != nil {
		return &command.DeviceError{Err: errors.Join(err, b.Close())}
	}
	defer func() { err = errors.Join(err, near.Close()) }()
	far, err := via.OpenDevice(ctx, b, logged(ctx))
	if err != nil {
		return &command.DeviceError{Err: err}
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	return use(near, far)
}

// explain adds what to do when no server answers.
func explain(err error) error {
	if errors.Is(err, netmem.ErrUnavailable) && errors.Is(err, via.ErrTimeout) {
		return fmt.Errorf("%w; start 'trapeze memory serve' there, check the peer address and --server, or give it more --timeout", err)
	}
	return err
}
