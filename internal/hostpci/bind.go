package hostpci

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bind gives a function to VFIO: it restricts the function to that driver,
// takes it from the one that has it, and has the kernel probe. What is there
// already is left alone. Each step is checked; if one fails the function goes
// back to the driver that it had.
//
// Bridges and functions with virtual ones are refused. So are, unless Force is
// set, functions that the host uses and those whose group is not viable: with
// Group the others in it are bound too. The driver that the function had is
// written to /run/trapeze/pci, for Unbind.
//
// Errors are *failure.Error and wrap failure.ErrBadAddress, ErrNoFunction, ErrBridge,
// ErrSRIOV, ErrNoDriver, ErrNoIOMMU, ErrNotViable, ErrInUse, ErrHeld,
// ErrLocked, ErrRefused, ErrStuck or an errno; with ErrRolledBack if anything
// had been done.
func Bind(ctx context.Context, r Root, address string, o Options) (Result, error) {
	op := newOperation("bind", r, o)
	f, err := Lookup(r, address)
	if err != nil {
		return Result{}, err
	}
	if !driverName.MatchString(op.opts.Driver) || !IsVFIO(op.opts.Driver) {
		return Result{}, op.fail(f.Address, fmt.Errorf("%w: %q is not one of VFIO's", ErrNoDriver, op.opts.Driver), "use vfio-pci, or a variant such as mlx5_vfio_pci")
	}
	f, unlock, err := op.reserve(ctx, f)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	todo, err := op.family(f, func(m Member) bool { return m.Driver != op.opts.Driver && !m.Bridge })
	if err != nil {
		return Result{}, err
	}
	if f.Driver == op.opts.Driver {
		todo = slices.DeleteFunc(todo, func(g Function) bool { return g.Address == f.Address })
	}
	overridden, err := op.mayTake(f, todo)
	if err != nil {
		return Result{}, err
	}
	// Whether it may be taken comes first: a driver is soon loaded.
	var modules []string
	if len(todo) > 0 && !r.Exists(path.Join("sys/bus/pci/drivers", op.opts.Driver)) {
		if !o.DryRun {
			return Result{}, op.fail(f.Address, fmt.Errorf("%w: %s", ErrNoDriver, op.opts.Driver), "modprobe "+op.opts.Driver)
		}
		modules = []string{op.opts.Driver}
	}
	for i, g := range todo {
		err := op.take(ctx, g)
		if err == nil {
			continue
		}
		err = op.restore(ctx, todo[:i+1], err)
		if errors.Is(err, ErrRolledBack) {
			for _, h := range todo[:i+1] {
				err = errors.Join(err, forget(r, h.Address))
			}
		}
		return op.result(nil), op.fail(g.Address, err, op.hintFor(err, g))
	}
	res := op.result(todo)
	res.Overridden, res.Modules = overridden, modules
	if !o.DryRun {
		err = op.addNodes(&res, append([]Function{f}, todo...))
	}
	return res, err
}

// family returns the function and, with Group, the others of its group that
// match.
func (op *operation) family(f Function, also func(Member) bool) ([]Function, error) {
	list := []Function{f}
	if !op.opts.Group {
		return list, nil
	}
	for _, m := range f.GroupMembers {
		if !also(m) {
			continue
		}
		g, err := Lookup(op.root, m.Address)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

// mayTake refuses what must stay with the kernel. It returns the uses that
// Force overrides. f may be bound already.
func (op *operation) mayTake(f Function, todo []Function) (overridden []Use, err error) {
	for _, g := range todo {
		switch {
		case g.Bridge, g.Class>>16 == classBridge: // those to ISA look like any other function
			return nil, op.fail(g.Address, ErrBridge, "bind the functions behind it")
		case g.SRIOV.VFs > 0:
			return nil, op.fail(g.Address, fmt.Errorf("%w: it has %d virtual functions", ErrSRIOV, g.SRIOV.VFs),
				sriovHint(op.root, g))
		case g.IOMMUGroup < 0 && !UnsafeMode(op.root):
			return nil, op.fail(g.Address, ErrNoIOMMU, "turn the IOMMU on; trapeze doctor says how")
		}
		if err := op.mayDisturb(g, "end it first"); err != nil {
			return nil, err
		}
		uses, err := Uses(op.root, g)
		if err != nil && !op.opts.Force {
			return nil, err
		}
		if len(uses) > 0 && !op.opts.Force {
			hint := "stop that first, or take it all the same with --force"
			if slices.ContainsFunc(uses, Use.CutsOff) {
				hint = "this host is reached over it: bind another NIC; --force takes it all the same, and may cut the host off"
			}
			return nil, op.fail(g.Address, detailed(ErrInUse, uses), hint)
		}
		overridden = append(overridden, uses...)
	}
	if blockers := f.Blockers(); len(blockers) > 0 && !op.opts.Group && !op.opts.Force {
		return nil, op.fail(f.Address, detailed(ErrNotViable, blockers), groupHint(op.root, f.Address, blockers))
	}
	return overridden, nil
}

// groupHint says what would make a group viable. What the host uses is not to be freed.
func groupHint(r Root, address string, blockers []Member) string {
	hint := "take all of them with trapeze bind --group " + address
	var s []string
	for _, m := range blockers {
		if InUse(r, m.Address) {
			return hint + ", which refuses those that the host uses"
		}
		s = append(s, Write{devicePath(m.Address, "driver/unbind"), m.Address}.String())
	}
	return hint + ", or free the others: " + strings.Join(s, "; ")
}

// sriovHint says what takes a function's virtual ones away. If the host uses one
// of these, they are not to be ended.
func sriovHint(r Root, f Function) string {
	if slices.ContainsFunc(f.VirtualFunctions(r), func(address string) bool { return InUse(r, address) }) {
		return "bind one of those that the host does not use"
	}
	return "bind one of those, or end them: echo 0 > " + devicePath(f.Address, "sriov_numvfs")
}

// UnsafeMode says whether VFIO takes functions without an IOMMU.
func UnsafeMode(r Root) bool {
	return r.Optional("sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
}

// mayDisturb refuses, unless Force is set, a function that a process has open through VFIO.
func (op *operation) mayDisturb(f Function, hint string) error {
	if !IsVFIO(f.Driver) {
		return nil
	}
	nodes, err := f.Nodes(op.root)
	if err != nil {
		return op.fail(f.Address, err, "")
	}
	holders, err := Holders(op.root, nodes)
	switch {
	case err != nil:
		return op.fail(f.Address, err, "")
	case len(holders) > 0 && !op.opts.Force:
		return op.fail(f.Address, detailed(ErrHeld, holders), hint)
	}
	return nil
}

// take gives one function to VFIO.
func (op *operation) take(ctx context.Context, f Function) error {
	// A VFIO driver is none to go back to: what is on record already is.
	if !op.opts.DryRun && !IsVFIO(f.Driver) {
		if err := remember(op.root, f); err != nil {
			return err
		}
	}
	return op.hand(ctx, f, op.opts.Driver, func(now string) bool { return now == op.opts.Driver })
}

func (op *operation) result(done []Function) Result {
	res := Result{Writes: op.writes}
	for _, f := range done {
		res.Changes = append(res.Changes, Change{f.Address, f.Driver, op.opts.Driver})
	}
	return res
}

// addNodes looks up how the functions can be opened now.
func (op *operation) addNodes(res *Result, list []Function) error {
	for _, f := range list {
		now, err := Lookup(op.root, f.Address)
		if err != nil {
			return err
		}
		nodes, err := now.Nodes(op.root)
		if err != nil {
			return op.fail(f.Address, err, "")
		}
		for _, n := range nodes {
			res.Nodes = append(res.Nodes, "/"+n)
		}
	}
	slices.Sort(res.Nodes)
	res.Nodes = slices.Compact(res.Nodes)
	return nil
}
