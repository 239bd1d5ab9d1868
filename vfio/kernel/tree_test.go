package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// tree is a folder that looks like the root of a machine: sysfs, proc, and the
// names of device nodes.
type tree struct {
	t *testing.T
	hostpci.Root
}

func (tr tree) path(elements ...string) string { return tr.Path(filepath.Join(elements...)) }

// ownNode is the folder in sysfs that names a function's own node.
func ownNode(address, name string) string {
	return "sys/bus/pci/devices/" + address + "/vfio-dev/" + name
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, hostpci.Root(t.TempDir())}
	tr.file("", "dev/vfio/vfio")
	tr.file("VmLck:\t      64 kB\nVmPin:\t     128 kB\n", "proc/self/status")
	return tr
}

func (tr tree) check(err error) {
	tr.t.Helper()
	must.OK(tr.t, err)
}

func (tr tree) file(content string, path ...string) {
	tr.t.Helper()
	name := tr.path(path...)
	tr.check(os.MkdirAll(filepath.Dir(name), 0o755))
	tr.check(os.WriteFile(name, []byte(content), 0o644))
}

func (tr tree) link(target string, path ...string) {
	tr.t.Helper()
	name := tr.path(path...)
	tr.check(os.MkdirAll(filepath.Dir(name), 0o755))
	tr.check(os.Symlink(target, name))
}

func (tr tree) remove(path ...string) {
	tr.t.Helper()
	tr.check(os.RemoveAll(tr.path(path...)))
}

// function adds a PCI function; group -1 is none, driver "" is none.
func (tr tree) function(address, driver string, group int, class string) {
	tr.t.Helper()
	base := "sys/bus/pci/devices/" + address
	tr.file("0x1af4\n", base, "vendor")
	tr.file("0x1337\n", base, "device")
	tr.file(class+"\n", base, "class")
	tr.file("D0\n", base, "power_state")
	tr.file("on\n", base, "power/control")
	if driver != "" {
		tr.link("../../drivers/"+driver, base, "driver")
	}
	if group >= 0 {
		tr.link(fmt.Sprintf("../../../../kernel/iommu_groups/%d", group), base, "iommu_group")
		tr.link("../../../../bus/pci/devices/"+address, "sys/kernel/iommu_groups", strconv.Itoa(group), "devices", address)
	}
}

// cdev gives a function a node of its own.
func (tr tree) cdev(address, name string) {
	tr.t.Helper()
	tr.check(os.MkdirAll(tr.path(ownNode(address, name)), 0o755))
	tr.file("", "dev/vfio/devices", name)
	tr.file("", "dev/iommu")
}

// groupNode adds the node of a group.
func (tr tree) groupNode(name string) { tr.t.Helper(); tr.file("", "dev/vfio", name) }

// holder adds a process that has a node open.
func (tr tree) holder(pid int, name, node string) {
	tr.t.Helper()
	tr.file(name+"\n", "proc", strconv.Itoa(pid), "comm")
	tr.link("/"+node, "proc", strconv.Itoa(pid), "fd/7")
}

const (
	nic      = "0000:03:00.0"
	nicClass = "0x020000"
)

// machine is a tree with one NIC that is bound to vfio-pci and has all nodes.
func machine(t *testing.T) tree {
	t.Helper()
	tr := newTree(t)
	tr.function(nic, "vfio-pci", 7, nicClass)
	tr.groupNode("7")
	tr.cdev(nic, "vfio0")
	return tr
}
