// Package memorycmd holds the commands of trapeze that lend and use the memory of other
// machines.
package memorycmd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// commands share what they need.
type commands struct{ *command.Env }

// Command returns the command "memory" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	t := cmdtable.New(help, map[string]string{
		"server":  netmem.DefaultName,
		"timeout": netmem.DefaultTimeout.String(), "page": option.Bytes(netmem.DefaultPage).String(),
	})
	c := t.Family("memory",
		cmdtable.Does("memory serve", x.serve, serveReport{}),
		cmdtable.Does("memory map", x.mapped, mapReport{}),
		cmdtable.Does("memory stat", x.stat, []statReport{}),
		cmdtable.Does("memory demo", x.demo, demoReport{}),
		cmdtable.Does("memory cooperate", x.cooperate, coopReport{}),
	)
	pager := t.Command(cmdtable.Does("memory pager", runPager, nil))
	pager.Hidden = true // 'memory map' starts it
	c.AddCommand(pager)
	return c
}

// clientFlags say which servers are used.
type clientFlags struct {
	Device  string        `flag:"device" help:"address of the NIC to use"`
	Servers []string      `flag:"server" default:"{server}" help:"a server, [MAC/]NAME; give the flag once for each"`
	Timeout time.Duration `flag:"timeout" default:"{timeout}" range:"1ns.." help:"how long a server may take for an answer"`
}

// shareFlags are of a cooperative cache: there is none without clients.
type shareFlags struct {
	Clients []string     `flag:"client" help:"a client that lends its cache, [MAC/]NAME; give the flag once for each (default none)"`
	Name    string       `flag:"name" help:"what other clients call this one (default it lends nothing)"`
	Cache   option.Bytes `flag:"cache" default:"32M" help:"local memory for pages that is shared with them"`
	Lend    option.Bytes `flag:"lend" help:"how much of it others may use (default all)"`
}

// cooperation returns what these flags say; nil without other clients.
func (f *shareFlags) cooperation() (*netmem.Cooperation, error) {
	switch {
	case len(f.Clients) == 0 && f.Name != "":
		return nil, &option.Error{Option: "--client", Allowed: "the addresses of all clients, also that of this one, with --name"}
	case len(f.Clients) == 0:
		return nil, nil
	}
	hosts, err := parseServers("--client", f.Clients)
	return &netmem.Cooperation{Name: f.Name, Lend: int64(f.Lend), Hosts: hosts}, err
}

// addresses reads the flag --server.
func (f *clientFlags) addresses() ([]string, error) {
	return parseServers("--server", f.Servers)
}

func parseServers(flag string, names []string) (list []string, err error) {
	for _, name := range names {
		a, err := parseServer(flag, name)
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

// with opens a NIC for use.
func with(ctx context.Context, device string, use func(*via.NIC) error) error {
	nic, err := peer.Open(ctx, device, via.Options{})
	if err != nil {
		return err
	}
	return errors.Join(use(nic), nic.Close())
}

// openError marks what is wrong with the command line.
func openError(err error) error {
	if errors.Is(err, netmem.ErrOption) {
		return option.Mark(err)
	}
	return explain(err)
}

// explain adds what to do when no server answers.
func explain(err error) error {
	if errors.Is(err, netmem.ErrUnavailable) && errors.Is(err, via.ErrTimeout) {
		return shell.Hinted(err, "start 'trapeze memory serve' there, check the peer address and --server, or give it more --timeout")
	}
	return err
}
