package hostcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// bindReport is the JSON output of bind and unbind.
type bindReport struct {
	DryRun     bool             `json:"dry_run"`
	Changes    []hostpci.Change `json:"changes"`
	Modules    []string         `json:"modules" help:"to be loaded first, in a dry run"`
	Writes     []hostpci.Write  `json:"writes"`
	Overridden []string         `json:"overridden" help:"uses of the host that --force has ended"`
	Nodes      []string         `json:"nodes" help:"by which the functions can be opened"`
}

type bindFlags struct {
	rootFlag
	Group   bool          `flag:"group" help:"the whole IOMMU group, bridges aside"`
	Force   bool          `flag:"force" help:"also if the host uses it, its group is not viable, or a process has it open"`
	DryRun  bool          `flag:"dry-run" help:"change nothing, print the commands that would"`
	Timeout time.Duration `flag:"timeout" default:"{timeout}" range:"1ns..1h" help:"how long the kernel may take for a step"`
}

func (x *commands) bind(ctx context.Context, f *struct {
	bindFlags
	Driver string `flag:"driver" default:"{driver}" help:"the VFIO driver: vfio-pci, or a variant such as mlx5_vfio_pci"`
}, args []string) error {
	return x.change(ctx, hostpci.Bind, &f.bindFlags, f.Driver, args[0], "is bound already")
}

func (x *commands) unbind(ctx context.Context, f *bindFlags, args []string) error {
	return x.change(ctx, hostpci.Unbind, f, "", args[0], "has been given back already")
}

// change gives a function to VFIO or back. already says that there was nothing to change.
func (x *commands) change(ctx context.Context, do func(context.Context, hostpci.Root, string, hostpci.Options) (hostpci.Result, error),
	f *bindFlags, driver, address, already string) error {
	res, err := do(ctx, f.Root, address, hostpci.Options{Write: x.write, Driver: driver, Group: f.Group, Force: f.Force, DryRun: f.DryRun, Timeout: f.Timeout})
	if err != nil {
		return marked(err)
	}
	return x.printBind(f.DryRun, already, res)
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
