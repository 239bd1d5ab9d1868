package hostpci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
)

// Unbind gives a function back to the kernel: it takes it from VFIO, lifts the
// restriction that Bind has made, and has the kernel probe. If that does not
// bring back the driver that Bind has written down, the driver is bound by
// name. Without a record, as after a binding at boot, the kernel's choice
// stands; there may be none. Each step is checked; if one fails the function
// goes back to VFIO.
//
// A function that has no driver is probed too, one that belongs to a driver of
// the kernel's already is refused with ErrNotVFIO. A function that a process
// has open is refused with ErrHeld unless Force is set, as the kernel then waits
// for that process. One that VFIO takes at once again, because of its IDs, fails
// with ErrTakenBack. Other errors are those of Bind.
func Unbind(ctx context.Context, r Root, address string, o Options) (Result, error) {
	op := newOperation("unbind", r, o)
	f, err := Lookup(r, address)
	if err != nil {
		return Result{}, err
	}
	f, unlock, err := op.reserve(ctx, f)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	if f.Driver != "" && !IsVFIO(f.Driver) {
		return Result{}, op.fail(f.Address, fmt.Errorf("%w but to %s", ErrNotVFIO, f.Driver), "there is nothing to do")
	}
	todo, err := op.family(f, func(m Member) bool { return IsVFIO(m.Driver) })
	if err != nil {
		return Result{}, err
	}
	was, err := op.mayGive(todo)
	if err != nil {
		return Result{}, err
	}
	var changes []Change
	for i, g := range todo {
		after, err := op.give(ctx, g, was[i])
		if err != nil {
			err = op.restore(ctx, todo[:i+1], err)
			return op.result(nil), op.fail(g.Address, err, op.hintFor(err, g))
		}
		if g.Driver != after {
			changes = append(changes, Change{g.Address, g.Driver, after})
		}
	}
	if !o.DryRun {
		for _, g := range todo {
			err = errors.Join(err, forget(r, g.Address))
		}
	}
	if err != nil {
		err = op.fail(f.Address, err, "remove the file yourself")
	}
	return Result{Changes: changes, Writes: op.writes}, err
}

// mayGive refuses functions that are held, and those whose driver is gone. It
// returns what each was bound to, if that is known.
func (op *operation) mayGive(todo []Function) ([]*record, error) {
	list := make([]*record, len(todo))
	for i, g := range todo {
		if err := op.mayDisturb(g, "end it first: the kernel waits for it"); err != nil {
			return nil, err
		}
		was, err := recall(op.root, g.Address)
		if err != nil {
			return nil, op.fail(g.Address, err, "remove that file: the kernel then chooses the driver")
		}
		if was != nil && was.Driver != "" && !op.opts.Force && !op.root.Exists(path.Join("sys/bus/pci/drivers", was.Driver)) {
			return nil, op.fail(g.Address, fmt.Errorf("%w: %s, which had it before", ErrNoDriver, was.Driver), "load its module, or leave it without a driver with --force")
		}
		list[i] = was
	}
	return list, nil
}

// give gives one function back. It returns the driver that it then has, or
// would have.
func (op *operation) give(ctx context.Context, f Function, was *record) (string, error) {
	expect, override := "", ""
	if was != nil {
		expect, override = was.Driver, was.Override
	}
	if IsVFIO(override) { // set at boot, for one: it would only come back
		override = ""
	}
	if err := op.hand(ctx, f, override, func(string) bool { return true }); err != nil {
		return "", err
	}
	if op.opts.DryRun {
		return cmp.Or(expect, "?"), nil
	}
	now, err := DriverOf(op.root, f.Address)
	if err == nil && IsVFIO(now) && expect == "" {
		return "", fmt.Errorf("%w: %s", ErrTakenBack, now)
	}
	if err != nil || expect == "" || now == expect || !op.root.Exists(path.Join("sys/bus/pci/drivers", expect)) {
		return now, err
	}
	if now != "" {
		if err := op.release(ctx, f.Address); err != nil {
			return "", err
		}
	}
	return expect, op.attach(ctx, f.Address, expect)
}
