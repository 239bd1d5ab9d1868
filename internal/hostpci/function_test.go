package hostpci_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

const ids = "# names\n1234  Example Corp\n\t7250  Trapeze NIC\n\t\t1234 0001  a subsystem\n8086  Intel\nC 02  Network controller\n\t00  Ethernet controller\n\t80  Network controller, other\n"

// machine is a host with a NIC of ours behind a root port that is in its group,
// a NIC whose interface is on a virtio device, a disk and a far-away function.
func machine(t *testing.T) *hostpcitest.Tree {
	t.Helper()
	tree := hostpcitest.New(t)
	tree.File("usr/share/misc/pci.ids", ids)
	port := hostpcitest.Function{Address: "0000:00:1c.0", Vendor: 0x8086, Device: 0xa110, Class: 0x060400, Driver: "pcieport", Group: 12}
	tree.Function(port)
	nic := hostpcitest.NIC()
	nic.Driver = "vfio-pci"
	tree.Function(nic)
	tree.Function(hostpcitest.Function{Address: "0000:00:03.0", Vendor: 0x1af4, Device: 0x1041, Class: 0x020000, Driver: "virtio-pci"})
	tree.Netdev("eth0", "sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0")
	tree.Function(hostpcitest.Function{Address: "0000:00:04.0", Vendor: 0x1b36, Device: 0x0010, Class: 0x010802, Driver: "nvme", Group: 3})
	tree.Function(hostpcitest.Function{Address: "10000:e1:00.0", Vendor: 0x8086, Device: 0x1572, Class: 0x020000, Group: 40})
	return tree
}

func TestFunctions(t *testing.T) {
	tree := machine(t)
	tree.File("dev/iommu", "")
	tree.File("dev/vfio/devices/vfio0", "")
	tree.Dir(hostpcitest.Dir("0000:03:00.0") + "/vfio-dev/vfio0")
	tree.Files("sys/bus/pci/devices/10000:e1:00.0/sriov_numvfs = 2\nsys/bus/pci/devices/10000:e1:00.0/sriov_totalvfs = 64\n" +
		"sys/bus/pci/devices/10000:e1:00.0/current_link_speed = Unknown\nsys/bus/pci/devices/10000:e1:00.0/max_link_width = 255")
	got := must.Get(hostpci.Functions(tree.Root()))(t)
	hostpci.Fit(got, []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250, Untested: true}, {Name: "other", Vendor: 0x1234, Device: 1}})
	bars := []hostpci.BAR{{Index: 0, Address: 0xfe000000, Size: 0x10000, Wide: true}}
	awake := hostpci.Power{State: "D0", Runtime: "active", Control: "on"}
	link := hostpci.Link{Speed: 8, MaxSpeed: 16, Width: 4, MaxWidth: 8}
	want := []hostpci.Function{
		{
			Address: "0000:00:03.0", Vendor: 0x1af4, Device: 0x1041, Class: 0x020000, Driver: "virtio-pci", IOMMUGroup: -1,
			Revision: 1, SubsystemVendor: 0x1234, Subsystem: 1, ClassName: "Ethernet controller", Bridges: []string{},
			Link: link, Netdevs: []string{"eth0"}, Power: awake, BARs: bars,
		},
		{
			Address: "0000:03:00.0", Vendor: 0x1234, Device: 0x7250, Class: 0x028000, Driver: "vfio-pci", IOMMUGroup: 12,
			Revision: 1, SubsystemVendor: 0x1234, Subsystem: 1, VendorName: "Example Corp", DeviceName: "Trapeze NIC", ClassName: "Network controller, other",
			GroupMembers: []hostpci.Member{{Address: "0000:00:1c.0", Driver: "pcieport", Bridge: true}}, Bridges: []string{"0000:00:1c.0"},
			Link: link, Netdevs: []string{}, Power: awake, BARs: bars, Backends: []string{"cdev", "group"}, Fits: "trapeze", Untested: true,
		},
		{
			Address: "10000:e1:00.0", Vendor: 0x8086, Device: 0x1572, Class: 0x020000, IOMMUGroup: 40,
			Revision: 1, SubsystemVendor: 0x1234, Subsystem: 1, VendorName: "Intel", ClassName: "Ethernet controller", Bridges: []string{},
			Link: hostpci.Link{MaxSpeed: 16, Width: 4}, Netdevs: []string{}, Power: awake, BARs: bars, SRIOV: hostpci.SRIOV{VFs: 2, TotalVFs: 64},
		},
	}
	should.Be(t, cmp.Diff(want, got), "")
	all, err := hostpci.AllFunctions(tree.Root())
	if err != nil || len(all) != 5 {
		t.Errorf("%d functions, %v", len(all), err)
	}
}

func TestUnguarded(t *testing.T) {
	tree := machine(t)
	tree.File("sys/kernel/iommu_groups/12/name", "vfio-noiommu\n")
	tree.File("dev/vfio/noiommu-12", "")
	f, err := hostpci.Lookup(tree.Root(), "03:00.0")
	must.OK(t, err)
	if !f.Unguarded || !cmp.Equal(f.Backends, []string{"noiommu"}) {
		t.Errorf("unguarded %v, back ends %v", f.Unguarded, f.Backends)
	}
	tree.Remove("dev/vfio/vfio")
	if f, err = hostpci.Lookup(tree.Root(), "03:00.0"); err != nil || len(f.Backends) != 0 {
		t.Errorf("without a container: back ends %v, %v", f.Backends, err)
	}
}

func TestVirtualFunction(t *testing.T) {
	tree := machine(t)
	tree.Link("sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/physfn", "sys/devices/pci0000:00/0000:00:03.0")
	f, err := hostpci.Lookup(tree.Root(), "pci:0000:03:00.0?backend=group")
	if err != nil || f.SRIOV.Physical != "0000:00:03.0" {
		t.Errorf("%+v, %v", f.SRIOV, err)
	}
}

// TestBrokenFunctions: one that cannot be read does not hide the others.
func TestBrokenFunctions(t *testing.T) {
	for name, file := range map[string]string{
		"vendor is no number":    "vendor",
		"class has 25 bits":      "class",
		"resource is cut off":    "resource",
		"numa_node is no number": "numa_node",
		"sriov_numvfs is text":   "sriov_numvfs",
	} {
		t.Run(name, func(t *testing.T) {
			tree := machine(t)
			tree.File(hostpcitest.Dir("0000:00:03.0")+"/"+file, "0x1ffffffg 1\n")
			got, err := hostpci.Functions(tree.Root())
			if err == nil || len(got) != 2 {
				t.Errorf("%d functions, %v", len(got), err)
			}
			var e *vfio.Error
			if !errors.As(err, &e) {
				t.Errorf("%T is no *vfio.Error", err)
			}
		})
	}
}

func TestLookupErrors(t *testing.T) {
	tree := machine(t)
	for address, want := range map[string]error{
		"":                    vfio.ErrBadAddress,
		"eth0":                vfio.ErrBadAddress,
		"../../../etc":        vfio.ErrBadAddress,
		"0000:03:00.8":        vfio.ErrBadAddress,
		"0000:03:20.0":        vfio.ErrBadAddress,
		"emu:":                vfio.ErrBadAddress,
		"0000:04:00.0":        hostpci.ErrNoFunction,
		"pci:0000:04:00.0?a=": hostpci.ErrNoFunction,
	} {
		should.Refuse(hostpci.Lookup(tree.Root(), address))(t, want, "%q", address)
	}
	should.Refuse(hostpci.Functions("/nonexistent"))(t, fs.ErrNotExist, "no root")
	if list, err := hostpci.Functions(hostpcitest.New(t).Root()); err != nil || len(list) != 0 {
		t.Errorf("no functions: %v, %v", list, err)
	}
}

// TestThisHost reads whatever machine runs the test.
func TestThisHost(t *testing.T) {
	all := must.Get(hostpci.AllFunctions("/"))(t)
	entries, err := os.ReadDir("/sys/bus/pci/devices")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	should.Be(t, len(all), len(entries), "functions, sysfs")
	for _, f := range all {
		if _, err := hostpci.Uses("/", f); err != nil {
			t.Error(err)
		}
		for _, netdev := range f.Netdevs {
			real := must.Get(filepath.EvalSymlinks("/sys/class/net/" + netdev))(t)
			if owner, _ := filepath.EvalSymlinks("/sys/bus/pci/devices/" + f.Address); len(real) <= len(owner) || real[:len(owner)] != owner {
				t.Errorf("%s at %s is not below %s", netdev, real, owner)
			}
		}
	}
}
