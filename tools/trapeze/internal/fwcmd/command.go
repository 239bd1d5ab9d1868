// Package fwcmd holds the commands of trapeze that make, check, show and sign
// images of control programs, and those that put them into NICs.
package fwcmd

import (
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// Command returns the command "fw" with its subcommands.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	c := &cobra.Command{
		Use:   "fw",
		Short: "Control programs: make, check, show and sign images; ask and change what a NIC runs",
		Long: `Control programs: what a NIC's processor runs to decide about frames and
transfers.

An image is an ELF file for the BPF machine, as 'clang -O2 -g -target bpf -c' makes
it, with a note that names and signs it. Images of other processors are described by
a manifest in TOML, a file whose name ends in .toml. 'image:NAME' stands for an image
that comes with trapeze. Commands that take an IMAGE take all three; disasm takes
no manifest.

'trapeze load' puts an image into a NIC.

JSON keys: those of 'trapeze help --json'.`,
		Example: `  trapeze fw build --image amp --output amp.img
  clang -O2 -g -target bpf -c count.c -o count.o
  trapeze fw build --from count.o --name count --version 1.0 --output count.img
  trapeze fw check count.img
  trapeze fw keygen ~/keys/me
  trapeze fw sign count.img --key ~/keys/me.pem
  trapeze fw verify count.img --keys ~/keys
  trapeze fw status --device vfio-user:/run/nic0`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.build(), x.check(), x.show(), x.sign(), x.verify(), x.disassemble(), x.keygen(),
		x.status(), x.rollback(), x.unload(), x.maps())
	return c
}

// LoadCommand returns the command "load".
func LoadCommand(e *command.Env) *cobra.Command {
	return (&commands{e}).load()
}

// commands share what they need.
type commands struct{ *command.Env }
