package hostcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// bindReport is what bind --json and unbind --json print.
type bindReport struct {
	DryRun     bool             `json:"dry_run"`
	Changes    []hostpci.Change `json:"changes"`
	Modules    []string         `json:"modules" help:"to be loaded first, in a dry run"`
	Writes     []hostpci.Write  `json:"writes"`
	Overridden []string         `json:"overridden" help:"uses of the host that --force has ended"`
	Nodes      []string         `json:"nodes" help:"by which the functions can be opened"`
}

func (x *commands) bind() *cobra.Command {
	o := hostpci.Options{Write: x.write}
	c := x.binding(&o, hostpci.Bind, "is bound already", &cobra.Command{
		Use:   "bind ADDRESS",
		Short: "Give a NIC to VFIO, so that programs can drive it",
		Long: `Take a PCI function from its driver and give it to VFIO. It is a function's
address that is given, as 'trapeze list' prints it.

What the host uses is refused: an interface with an address or a route, in a
bond or bridge, with VLANs on it, or by which a file system or disk is reached.
So is a function whose IOMMU group has others that belong to the kernel; --group
takes those too. Each step is checked, and undone if a later one fails.
'trapeze unbind' brings the old driver back; so does a restart of the machine.

` + keys.Of(bindReport{}),
		Example: `  trapeze bind 0000:03:00.0
  trapeze bind --dry-run 0000:03:00.0
  trapeze bind --group pci:0000:03:00.0`,
	})
	c.Flags().StringVar(&o.Driver, "driver", hostpci.DefaultDriver, "the VFIO driver: vfio-pci, or a variant such as mlx5_vfio_pci")
	return c
}

func (x *commands) unbind() *cobra.Command {
	return x.binding(&hostpci.Options{Write: x.write}, hostpci.Unbind, "has been given back already", &cobra.Command{
		Use:   "unbind ADDRESS",
		Short: "Give a NIC back to the kernel's driver",
		Long: `Take a PCI function from VFIO and give it back: to the driver that it had before
'trapeze bind', or else to the one that the kernel chooses.

A function that a process has open is refused, as the kernel would wait for that
process.

` + keys.Of(bindReport{}),
		Example: `  trapeze unbind 0000:03:00.0
  trapeze unbind --dry-run 0000:03:00.0`,
	})
}

// binding completes c, which gives a function to VFIO or back. already says that there was nothing
// to change.
func (x *commands) binding(o *hostpci.Options, do func(context.Context, hostpci.Root, string, hostpci.Options) (hostpci.Result, error), already string, c *cobra.Command) *cobra.Command {
	var root string
	c.Args = cobra.ExactArgs(1)
	c.RunE = command.Run(func(ctx context.Context, args []string) error {
		if o.Timeout <= 0 || o.Timeout > time.Hour {
			return option.Errorf("--timeout %v: use more than nothing and at most an hour", o.Timeout)
		}
		res, err := do(ctx, hostpci.Root(root), args[0], *o)
		if err != nil {
			return marked(err)
		}
		return x.printBind(o.DryRun, already, res)
	})
	c.Flags().BoolVar(&o.Group, "group", false, "the whole IOMMU group, bridges aside")
	c.Flags().BoolVar(&o.Force, "force", false, "also if the host uses it, its group is not viable, or a process has it open")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "change nothing, print the commands that would")
	c.Flags().DurationVar(&o.Timeout, "timeout", hostpci.DefaultTimeout, "how long the kernel may take for a step")
	rootFlag(c, &root)
	return c
}

func (x *commands) printBind(dry bool, already string, res hostpci.Result) error {
	r := bindReport{DryRun: dry, Changes: append([]hostpci.Change{}, res.Changes...), Modules: append([]string{}, res.Modules...),
		Writes: append([]hostpci.Write{}, res.Writes...), Overridden: []string{}, Nodes: append([]string{}, res.Nodes...)}
	for _, u := range res.Overridden {
		r.Overridden = append(r.Overridden, u.String())
	}
	if x.JSON {
		return x.PrintJSON(r)
	}
	for _, u := range r.Overridden {
		fmt.Fprintf(x.Stderr, "forced, although %s\n", u)
	}
	if dry {
		for _, m := range res.Modules {
			fmt.Fprintln(x.Stdout, "modprobe "+m)
		}
		for _, w := range res.Writes {
			fmt.Fprintln(x.Stdout, w)
		}
		return nil
	}
	for _, c := range r.Changes {
		fmt.Fprintf(x.Stdout, "%s: %s -> %s\n", c.Address, cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"))
	}
	if len(r.Changes) == 0 {
		fmt.Fprintln(x.Stdout, already)
	}
	for _, n := range r.Nodes {
		fmt.Fprintf(x.Stdout, "opens by %s\n", n)
	}
	return nil
}
