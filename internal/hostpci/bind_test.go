package hostpci_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

const nicAddress = "0000:03:00.0"

// idleNIC is a host with VFIO whose NIC is idle, and its kernel.
func idleNIC(t *testing.T) (*hostpcitest.Tree, *hostpcitest.Kernel) {
	t.Helper()
	tree := nicWithPort(t)
	tree.Driver("vfio-pci")
	return tree, tree.Kernel(map[string]string{nicAddress: "ixgbe", "0000:03:00.1": "ixgbe"})
}

// twin adds a second function to the group of the NIC.
func twin(tree *hostpcitest.Tree) {
	f := hostpcitest.NIC()
	f.Address, f.Driver, f.Netdev = "0000:03:00.1", "ixgbe", "ens2"
	tree.Function(f)
}

func driverOf(t *testing.T, tree *hostpcitest.Tree, address string) string {
	t.Helper()
	f := must.Get(hostpci.Lookup(tree.Root(), address))(t)
	return f.Driver
}

func overrideOf(t *testing.T, tree *hostpcitest.Tree, address string) string {
	t.Helper()
	f := must.Get(hostpci.Lookup(tree.Root(), address))(t)
	return f.Override
}

// records are the files about functions that Bind has taken and Unbind has not yet given back.
func records(t *testing.T, tree *hostpcitest.Tree) []string {
	t.Helper()
	names := must.Get(tree.Root().Names("run/trapeze/pci"))(t)
	return slices.DeleteFunc(names, func(name string) bool { return name == "lock" })
}

// bindWrites are the writes that give the NIC to VFIO.
var bindWrites = []string{
	"echo vfio-pci > /sys/bus/pci/devices/0000:03:00.0/driver_override",
	"echo 0000:03:00.0 > /sys/bus/pci/devices/0000:03:00.0/driver/unbind",
	"echo 0000:03:00.0 > /sys/bus/pci/drivers_probe",
}

func text(writes []hostpci.Write) []string {
	var s []string
	for _, w := range writes {
		s = append(s, w.String())
	}
	return s
}

func TestBindAndUnbind(t *testing.T) {
	tree, kernel := idleNIC(t)
	opts := hostpci.Options{Write: kernel.Write}
	dry := must.Get(hostpci.Bind(t.Context(), tree.Root(), "pci:"+nicAddress, hostpci.Options{Write: kernel.Write, DryRun: true}))(t)
	should.Be(t, cmp.Diff(bindWrites, text(dry.Writes)), "")
	if w := kernel.Writes(); len(w) != 0 || tree.Root().Exists("run/trapeze") || driverOf(t, tree, nicAddress) != "ixgbe" {
		t.Errorf("a dry run has written %q", w)
	}

	got, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, opts)
	must.OK(t, err)
	want := hostpci.Result{Changes: []hostpci.Change{{Address: nicAddress, Before: "ixgbe", After: "vfio-pci"}}, Writes: dry.Writes, Nodes: []string{"/dev/vfio/12"}}
	should.Be(t, cmp.Diff(want, got), "")
	should.Be(t, cmp.Diff(bindWrites, kernel.Writes()), "")
	should.Same(t, records(t, tree), []string{nicAddress + ".json"}, "records")

	// Once more changes nothing.
	got, err = hostpci.Bind(t.Context(), tree.Root(), nicAddress, opts)
	if err != nil || len(got.Changes) != 0 || len(kernel.Writes()) != 3 || len(got.Nodes) != 1 {
		t.Errorf("%+v, %v", got, err)
	}

	got = must.Get(hostpci.Unbind(t.Context(), tree.Root(), nicAddress, opts))(t)
	should.Be(t, cmp.Diff([]hostpci.Change{{Address: nicAddress, Before: "vfio-pci", After: "ixgbe"}}, got.Changes), "")
	if d := cmp.Diff([]string{"echo > /sys/bus/pci/devices/0000:03:00.0/driver_override", bindWrites[1], bindWrites[2]}, text(got.Writes)); d != "" {
		t.Error(d)
	}
	should.Be(t, overrideOf(t, tree, nicAddress), "", "override is left")
	should.Same(t, records(t, tree), nil, "records")
}

// TestUnbindOtherwise: what the kernel makes of a function that was bound at boot, or whose driver is not its choice.
func TestUnbindOtherwise(t *testing.T) {
	bind := func(t *testing.T, tree *hostpcitest.Tree, kernel *hostpcitest.Kernel) {
		must.Get(hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write}))(t)
	}
	atBoot := func(_ *testing.T, tree *hostpcitest.Tree, _ *hostpcitest.Kernel) { tree.Bind(nicAddress, "vfio-pci") }
	for name, c := range map[string]struct {
		bind    func(*testing.T, *hostpcitest.Tree, *hostpcitest.Kernel)
		natural string // the kernel's choice
		driver  string // that it has in the end
		err     error
	}{
		"the driver that it had is not the kernel's choice": {bind, "other", "ixgbe", nil},
		"bound at boot":       {atBoot, "ixgbe", "ixgbe", nil},
		"VFIO wants it again": {atBoot, "vfio-pci", "vfio-pci", hostpci.ErrTakenBack}, // as with vfio-pci.ids
		"nobody wants it":     {atBoot, "", "", nil},
		"an override from boot is lifted": {func(t *testing.T, tree *hostpcitest.Tree, kernel *hostpcitest.Kernel) {
			tree.File(hostpcitest.Dir(nicAddress)+"/driver_override", "vfio-pci\n")
			bind(t, tree, kernel)
		}, "ixgbe", "ixgbe", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tree, kernel := idleNIC(t)
			tree.Driver("other")
			c.bind(t, tree, kernel)
			if kernel.Natural[nicAddress] = c.natural; c.natural == "" {
				kernel.Natural = nil
			}
			got, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write})
			if !errors.Is(err, c.err) || driverOf(t, tree, nicAddress) != c.driver || err == nil && got.Changes[0].After != c.driver {
				t.Errorf("%+v, %v", got, err)
			}
			if err != nil {
				should.Contain(t, err.Error(), "echo 1234 7250 > /sys/bus/pci/drivers/vfio-pci/remove_id", "no hint")
			}
		})
	}
	t.Run("its driver has been unloaded", func(t *testing.T) {
		tree, kernel := idleNIC(t)
		opts := hostpci.Options{Write: kernel.Write}
		bind(t, tree, kernel)
		tree.Remove("sys/bus/pci/drivers/ixgbe")
		if _, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, opts); !errors.Is(err, hostpci.ErrNoDriver) || len(kernel.Writes()) != 3 {
			t.Errorf("%v, %q", err, kernel.Writes())
		}
		opts.Force = true
		if _, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, opts); err != nil || driverOf(t, tree, nicAddress) != "" {
			t.Error(err)
		}
	})
	t.Run("a record that somebody wrote", func(t *testing.T) {
		tree, kernel := idleNIC(t)
		tree.Bind(nicAddress, "vfio-pci")
		for _, content := range []string{`{"driver":"../../../../etc"}`, `{"driver":"a b"}`, `[`, ``} {
			tree.File("run/trapeze/pci/"+nicAddress+".json", content)
			if _, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write}); err == nil || len(kernel.Writes()) != 0 {
				t.Errorf("%q: %v, wrote %q", content, err, kernel.Writes())
			}
		}
	})
}

func TestBindRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hostpcitest.Tree)
		opts   hostpci.Options
		want   error
		says   []string
		forced bool // --force lets it through
	}{
		"no driver": {func(h *hostpcitest.Tree) { h.Remove("sys/bus/pci/drivers/vfio-pci") }, hostpci.Options{}, hostpci.ErrNoDriver, []string{"modprobe vfio-pci"}, false},
		"not VFIO":  {func(*hostpcitest.Tree) {}, hostpci.Options{Driver: "ixgbe"}, hostpci.ErrNoDriver, []string{"ixgbe"}, false},
		"a path":    {func(*hostpcitest.Tree) {}, hostpci.Options{Driver: "../x-vfio-pci"}, hostpci.ErrNoDriver, nil, false},
		"in use": {func(h *hostpcitest.Tree) { h.File("proc/net/route", routeHeader+"ens1"+routeDefault) }, hostpci.Options{},
			hostpci.ErrInUse, []string{"ens1 carries the default route 0.0.0.0/0", "this host is reached over it"}, true},
		"in use, and no driver": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens1"+routeDefault)
			h.Remove("sys/bus/pci/drivers/vfio-pci")
		}, hostpci.Options{}, hostpci.ErrInUse, []string{"ens1 carries the default route 0.0.0.0/0"}, false},
		"in use, and no driver, in a dry run": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens1"+routeDefault)
			h.Remove("sys/bus/pci/drivers/vfio-pci")
		}, hostpci.Options{DryRun: true}, hostpci.ErrInUse, []string{"ens1 carries the default route 0.0.0.0/0"}, true},
		"no IOMMU": {func(h *hostpcitest.Tree) { h.Remove(hostpcitest.Dir(nicAddress) + "/iommu_group") }, hostpci.Options{}, hostpci.ErrNoIOMMU, []string{"trapeze doctor"}, false},
		"group": {twin, hostpci.Options{}, hostpci.ErrNotViable,
			[]string{"0000:03:00.1 belongs to ixgbe", "bind --group 0000:03:00.0", "echo 0000:03:00.1 > /sys/bus/pci/devices/0000:03:00.1/driver/unbind"}, true},
		"another in the group is in use": {func(h *hostpcitest.Tree) {
			twin(h)
			h.File("proc/net/route", routeHeader+"ens2"+routeDefault)
		}, hostpci.Options{Group: true}, hostpci.ErrInUse, []string{"0000:03:00.1", "ens2"}, true},
		"SR-IOV": {func(h *hostpcitest.Tree) { h.File(hostpcitest.Dir(nicAddress)+"/sriov_numvfs", "4\n") }, hostpci.Options{},
			hostpci.ErrSRIOV, []string{"4 virtual functions", "echo 0 > /sys/bus/pci/devices/0000:03:00.0/sriov_numvfs"}, false},
		"bridge":        {func(h *hostpcitest.Tree) { h.File(hostpcitest.Dir(nicAddress)+"/config", strings.Repeat("\x01", 64)) }, hostpci.Options{}, hostpci.ErrBridge, nil, false},
		"bridge to ISA": {func(h *hostpcitest.Tree) { h.File(hostpcitest.Dir(nicAddress)+"/class", "0x060100\n") }, hostpci.Options{}, hostpci.ErrBridge, nil, false},
		"routes that make no sense": {func(h *hostpcitest.Tree) { h.File("proc/net/route", "ens1 x\n") }, hostpci.Options{},
			nil, []string{"proc/net/route"}, true},
		"held through another VFIO driver": {func(h *hostpcitest.Tree) {
			h.Driver("mlx5_vfio_pci")
			h.Bind(nicAddress, "mlx5_vfio_pci")
			h.Process(99, "dpdk", "S", "dev/vfio/12")
		}, hostpci.Options{}, hostpci.ErrHeld, []string{"process 99 (dpdk)"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tree, kernel := idleNIC(t)
			c.change(tree)
			c.opts.Write = kernel.Write
			_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, c.opts)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			var e *vfio.Error
			if !errors.As(err, &e) {
				t.Errorf("%T is no *vfio.Error", err)
			}
			for _, s := range c.says {
				should.Contain(t, err.Error(), s, "%q does not say", err)
			}
			if w := kernel.Writes(); len(w) != 0 {
				t.Errorf("wrote %q", w)
			}
			c.opts.Force = true
			if _, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, c.opts); (err == nil) != c.forced {
				t.Errorf("with force: %v", err)
			}
		})
	}
}

func TestBindGroup(t *testing.T) {
	tree, kernel := idleNIC(t)
	twin(tree)
	tree.Function(hostpcitest.Function{Address: "0000:00:1c.0", Class: 0x060400, Driver: "pcieport", Group: 12})
	opts := hostpci.Options{Write: kernel.Write, Group: true}
	got, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, opts)
	if err != nil || len(got.Changes) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	should.Be(t, driverOf(t, tree, "0000:00:1c.0"), "pcieport", "the bridge was given")
	if got, err = hostpci.Unbind(t.Context(), tree.Root(), "0000:03:00.1", opts); err != nil || len(got.Changes) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, a := range []string{nicAddress, "0000:03:00.1"} {
		should.Be(t, driverOf(t, tree, a), "ixgbe", "%s belongs", a)
	}
}

func TestUnbindRefuses(t *testing.T) {
	tree, kernel := idleNIC(t)
	opts := hostpci.Options{Write: kernel.Write}
	should.Refuse(hostpci.Unbind(t.Context(), tree.Root(), nicAddress, opts))(t, hostpci.ErrNotVFIO)
	should.Refuse(hostpci.Unbind(t.Context(), tree.Root(), "0000:09:00.0", opts))(t, hostpci.ErrNoFunction)
	tree.Bind(nicAddress, "vfio-pci")
	tree.Process(99, "dpdk", "S", "dev/vfio/12")
	_, err := hostpci.Unbind(t.Context(), tree.Root(), nicAddress, opts)
	if !errors.Is(err, hostpci.ErrHeld) || !strings.Contains(err.Error(), "process 99 (dpdk)") || len(kernel.Writes()) != 0 {
		t.Errorf("%v, wrote %q", err, kernel.Writes())
	}
}

// TestOneAtATime: while a process binds, another one waits.
func TestOneAtATime(t *testing.T) {
	tree, kernel := idleNIC(t)
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		entered := false
		_, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: func(name, value string) error {
			if !entered {
				entered = true
				close(inside)
				<-leave
			}
			return kernel.Write(name, value)
		}})
		first <- err
	}()
	<-inside
	if _, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write, Timeout: 30 * time.Millisecond}); !errors.Is(err, hostpci.ErrLocked) {
		t.Error(err)
	}
	close(leave)
	should.OK(t, <-first)
	if got, err := hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write}); err != nil || len(got.Changes) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPlainFiles: without somebody who reacts to writes nothing has an effect.
func TestPlainFiles(t *testing.T) {
	tree, _ := idleNIC(t)
	before := leaktest.Files(t)
	for range 3 {
		should.Refuse(hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{}))(t, hostpci.ErrRefused)
	}
	should.Be(t, leaktest.Files(t), before, "files open before, after")
}

// TestDryRunWithoutDriver: the driver that is missing is a step, and no obstacle.
func TestDryRunWithoutDriver(t *testing.T) {
	tree, kernel := idleNIC(t)
	tree.Remove("sys/bus/pci/drivers/vfio-pci")
	res := must.Get(hostpci.Bind(t.Context(), tree.Root(), nicAddress, hostpci.Options{Write: kernel.Write, DryRun: true}))(t)
	if d := cmp.Diff(bindWrites, text(res.Writes)); d != "" || !cmp.Equal(res.Modules, []string{"vfio-pci"}) || len(kernel.Writes()) != 0 {
		t.Errorf("modules %v, %s", res.Modules, d)
	}
}
