package hostpci_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// TestRollback breaks each write in turn: the function, and others of its
// group, go back to where they were.
func TestRollback(t *testing.T) {
	breaks := map[string]func(*hostpcitest.Kernel){
		"unbind fails":    func(k *hostpcitest.Kernel) { k.Fail["unbind"] = syscall.EBUSY },
		"probe fails":     func(k *hostpcitest.Kernel) { k.Fail["drivers_probe"] = syscall.EINVAL },
		"probe ignored":   func(k *hostpcitest.Kernel) { k.Ignore["drivers_probe"] = true },
		"unbind ignored":  func(k *hostpcitest.Kernel) { k.Ignore["unbind"] = true },
		"probe forbidden": func(k *hostpcitest.Kernel) { k.Fail["drivers_probe"] = syscall.EACCES },
	}
	for name, spoil := range breaks {
		t.Run("bind, "+name, func(t *testing.T) {
			tree, kernel := idleNIC(t)
			twin(tree)
			// The first of the group succeeds.
			tree.File(hostpcitest.Dir("0000:03:00.1")+"/driver_override", "ixgbe\n")
			spoil(kernel)
			_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write, Group: true})
			if !errors.Is(err, hostpci.ErrRolledBack) {
				t.Fatal(err)
			}
			for _, a := range []string{nicAddress, "0000:03:00.1"} {
				should.Be(t, driverOf(t, tree, a), "ixgbe", "%s belongs", a)
			}
			if a, b := overrideOf(t, tree, nicAddress), overrideOf(t, tree, "0000:03:00.1"); a != "" || b != "ixgbe" {
				t.Errorf("overrides %q and %q", a, b)
			}
			should.Same(t, records(t, tree), nil, "records")
			if errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "sudo") {
				t.Errorf("no hint: %v", err)
			}
		})
		t.Run("unbind, "+name, func(t *testing.T) {
			if name == "probe ignored" {
				t.Skip("no driver is a choice of the kernel's, the driver is then bound by name")
			}
			tree, kernel := idleNIC(t)
			must.Get(hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write}))(t)
			spoil(kernel)
			_, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write})
			if !errors.Is(err, hostpci.ErrRolledBack) || driverOf(t, tree, nicAddress) != "vfio-pci" || overrideOf(t, tree, nicAddress) != "vfio-pci" {
				t.Errorf("%v, bound to %q", err, driverOf(t, tree, nicAddress))
			}
			should.Be(t, len(records(t, tree)), 1, "the record is gone")
		})
	}
}

// TestFirstWriteFails: nothing has been done, so nothing is undone.
func TestFirstWriteFails(t *testing.T) {
	tree, kernel := idleNIC(t)
	kernel.Fail["driver_override"] = syscall.EACCES
	_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "sudo") || len(kernel.Writes()) != 1 {
		t.Errorf("%v, wrote %q", err, kernel.Writes())
	}
}

func TestRollbackFails(t *testing.T) {
	tree, kernel := idleNIC(t)
	kernel.Fail["drivers_probe"], kernel.Fail["bind"] = syscall.EINVAL, syscall.ENODEV
	_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write})
	if errors.Is(err, hostpci.ErrRolledBack) || !errors.Is(err, syscall.EINVAL) || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%v does not name both failures", err)
	}
	should.Be(t, len(records(t, tree)), 1, "what it was bound to is forgotten")
}

// TestStuck: a write that does not return ends with an error, and nothing is
// written after it.
func TestStuck(t *testing.T) {
	tree, kernel := idleNIC(t)
	release := make(chan struct{})
	kernel.Block["unbind"] = release
	_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write, Timeout: time.Second})
	if !errors.Is(err, hostpci.ErrStuck) || !strings.Contains(err.Error(), "fuser") {
		t.Error(err)
	}
	if w := kernel.Writes(); len(w) != 1 {
		t.Errorf("wrote %q", w)
	}
	close(release)
	for len(kernel.Writes()) < 2 { // the write that was left alone
		time.Sleep(time.Millisecond)
	}
}

func TestCancelled(t *testing.T) {
	tree, kernel := idleNIC(t)
	ctx, cancel := context.WithCancel(t.Context())
	opts := hostpci.Options{Write: func(name, value string) error {
		cancel() // during the first write
		return kernel.Write(name, value)
	}}
	if _, err := hostpci.Bind(ctx, tree.Root(), nicAddress, opts); !errors.Is(err, context.Canceled) || !errors.Is(err, hostpci.ErrRolledBack) {
		t.Error(err)
	}
	should.Be(t, overrideOf(t, tree, nicAddress), "", "override is left")
	should.Be(t, driverOf(t, tree, nicAddress), "ixgbe", "belongs")
}
