package hostpci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/failure"
)

// DefaultDriver is the driver that Bind gives functions to.
const DefaultDriver = "vfio-pci"

// DefaultTimeout is the time that one write to sysfs may take.
const DefaultTimeout = 10 * time.Second

// Options say how to bind and unbind.
type Options struct {
	// Driver is the VFIO driver to bind, DefaultDriver if empty. Unbind does not
	// use it.
	Driver string
	// Group takes the whole IOMMU group, bridges aside, and not only the function.
	Group bool
	// Force takes functions that the host uses, functions whose group is not
	// viable, and functions that a process has open.
	Force bool
	// DryRun changes nothing: the result lists the writes.
	DryRun bool
	// Timeout for one write, DefaultTimeout if 0.
	Timeout time.Duration
	// Write writes to a file of sysfs, whose name starts with the root. Nil writes
	// to the file. Tests put a kernel's answers here.
	Write func(name, value string) error
}

// Write is one write to sysfs.
type Write struct {
	// Path is absolute, as if the root were "/".
	Path  string `json:"path"`
	Value string `json:"value"`
}

// String is a shell command that does it.
func (w Write) String() string {
	if w.Value == "\n" {
		return "echo > " + w.Path
	}
	return "echo " + w.Value + " > " + w.Path
}

// Change says what happened, or would happen, to a function.
type Change struct {
	Address string `json:"address"`
	// Before and After are drivers, empty for none. After is the one asked for
	// if it was a dry run; "?" if the kernel would choose.
	Before string `json:"before"`
	After  string `json:"after"`
}

// Result says what Bind or Unbind has done, or would do.
type Result struct {
	// Changes has one entry for each function that was not already as asked for.
	Changes []Change
	// Modules are drivers that have to be loaded before the writes. Only a dry run
	// has any.
	Modules []string
	// Writes to sysfs, in order.
	Writes []Write
	// Overridden are the uses that Force has ended.
	Overridden []Use
	// Nodes by which the functions can be opened now, such as "/dev/vfio/12".
	Nodes []string
}

// operation is one Bind or Unbind.
type operation struct {
	root   Root
	opts   Options
	name   string // "bind" or "unbind"
	writes []Write
}

func newOperation(name string, r Root, o Options) *operation {
	o.Timeout, o.Driver = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Driver, DefaultDriver)
	if o.Write == nil {
		o.Write = writeFile
	}
	return &operation{root: r, opts: o, name: name}
}

func (op *operation) fail(address string, err error, hint string) error {
	return &failure.Error{Op: op.name, Device: address, Err: err, Hint: hint}
}

// reserve keeps other runs away from the host's functions until unlock is called,
// and looks at f again: it may be another one's by now. A dry run needs neither.
func (op *operation) reserve(ctx context.Context, f Function) (now Function, unlock func() error, err error) {
	if op.opts.DryRun {
		return f, func() error { return nil }, nil
	}
	unlock, err = lock(ctx, op.root, op.opts.Timeout)
	if err != nil {
		return f, nil, op.fail(f.Address, err, op.hintFor(err, f))
	}
	now, err = Lookup(op.root, f.Address)
	if err != nil {
		_ = unlock() // the first error counts
		return f, nil, err
	}
	return now, unlock, nil
}

// writeFile writes to a file that is there; sysfs makes none.
func writeFile(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// write does one write, and checks that it had its effect.
func (op *operation) write(ctx context.Context, w Write, check func() (bool, error)) error {
	op.writes = append(op.writes, w)
	if op.opts.DryRun {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The kernel may hold a write back for as long as a process has the function
	// open, and nothing can take it back then. So the write is left alone after
	// a while; but not when the caller loses timeout, as only what is known to
	// have happened can be undone.
	done := make(chan error, 1)
	go func() { done <- op.opts.Write(op.root.Path(w.Path), w.Value) }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	case <-time.After(op.opts.Timeout):
		return fmt.Errorf("%s: %w, after %v", w, ErrStuck, op.opts.Timeout)
	}
	ok, err := check()
	if err == nil && !ok {
		err = ErrRefused
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w, err)
	}
	return nil
}

func devicePath(address string, name string) string {
	return "/" + path.Join(devices, address, name)
}

// setOverride restricts a function to one driver; none lifts the restriction.
func (op *operation) setOverride(ctx context.Context, address, driver string) error {
	value := driver
	if value == "" {
		value = "\n" // nothing at all would not reach the kernel
	}
	return op.write(ctx, Write{devicePath(address, "driver_override"), value}, func() (bool, error) {
		now, err := op.override(address)
		return now == driver, err
	})
}

// override is the only driver that a function may have, empty for any.
func (op *operation) override(address string) (string, error) {
	now, err := op.root.Text(devicePath(address, "driver_override"))
	if now == "(null)" {
		now = ""
	}
	return now, err
}

// release takes a function from its driver.
func (op *operation) release(ctx context.Context, address string) error {
	return op.tell(ctx, devicePath(address, "driver/unbind"), address, func(now string) bool { return now == "" })
}

// attach binds a driver by name.
func (op *operation) attach(ctx context.Context, address, driver string) error {
	return op.tell(ctx, "/sys/bus/pci/drivers/"+driver+"/bind", address, func(now string) bool { return now == driver })
}

// tell writes a function's address to a file, which is to give it a driver that is ok.
func (op *operation) tell(ctx context.Context, file, address string, ok func(driver string) bool) error {
	return op.write(ctx, Write{file, address}, func() (bool, error) {
		now, err := DriverOf(op.root, address)
		return err == nil && ok(now), err
	})
}

// hand takes a function from its driver, if it has one, and makes the kernel look for another.
func (op *operation) hand(ctx context.Context, f Function, override string, ok func(driver string) bool) error {
	err := op.setOverride(ctx, f.Address, override)
	if err == nil && f.Driver != "" {
		err = op.release(ctx, f.Address)
	}
	if err != nil {
		return err
	}
	return op.tell(ctx, "/sys/bus/pci/drivers_probe", f.Address, ok)
}

// restore brings functions back to where they were, the last one first.
func (op *operation) restore(ctx context.Context, before []Function, cause error) error {
	// A write to a function that is stuck would be stuck too.
	if errors.Is(cause, ErrStuck) {
		return cause
	}
	// What ended the caller's timeout must not end this.
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, f := range slices.Backward(before) {
		errs = append(errs, op.restoreOne(ctx, f))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; undoing it failed too: %w", cause, err)
	}
	return fmt.Errorf("%w (%w)", cause, ErrRolledBack)
}

func (op *operation) restoreOne(ctx context.Context, f Function) error {
	now, err := DriverOf(op.root, f.Address)
	if err == nil && now != "" && now != f.Driver {
		err = op.release(ctx, f.Address)
	}
	if err != nil {
		return err
	}
	override, err := op.override(f.Address)
	if err == nil && override != f.Override {
		err = op.setOverride(ctx, f.Address, f.Override)
	}
	if err != nil || f.Driver == "" || now == f.Driver {
		return err
	}
	return op.attach(ctx, f.Address, f.Driver)
}

// hintFor says what to do about a step that failed.
func (op *operation) hintFor(err error, f Function) string {
	switch {
	case errors.Is(err, ErrStuck):
		return fmt.Sprintf("a process may hold the function: fuser -v /dev/vfio/%d; the write goes on until it lets go", f.IOMMUGroup)
	case errors.Is(err, ErrTakenBack):
		return fmt.Sprintf("echo %04x %04x > /sys/bus/pci/drivers/%s/remove_id; if that does not help it is in vfio-pci.ids, "+
			"on the kernel's command line or in /etc/modprobe.d", f.Vendor, f.Device, f.Driver)
	case errors.Is(err, fs.ErrPermission):
		return "this takes root, and a sysfs that is not mounted read-only: try again with sudo"
	case errors.Is(err, ErrRefused), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV):
		return "the kernel's log says why: dmesg | grep " + f.Address
	}
	return ""
}
