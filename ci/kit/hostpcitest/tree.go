// Package hostpcitest makes hosts for tests: a folder with what sysfs, proc and
// dev would show, and a kernel that reacts to writes.
package hostpcitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Tree is the root folder of a host.
type Tree struct {
	tb   testing.TB
	root string
}

// New makes an empty host, with the folders that every one has.
func New(tb testing.TB) *Tree {
	tb.Helper()
	t := &Tree{tb: tb, root: tb.TempDir()}
	for _, dir := range []string{"sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/class/net", "sys/kernel/iommu_groups", "proc", "dev", "run"} {
		t.Dir(dir)
	}
	t.File("sys/bus/pci/drivers_probe", "")
	return t
}

// Root of the host.
func (t *Tree) Root() hostpci.Root { return hostpci.Root(t.root) }

// Dir makes a folder.
func (t *Tree) Dir(name string) {
	t.tb.Helper()
	must.OK(t.tb, os.MkdirAll(filepath.Join(t.root, name), 0o755))
}

// File writes a file, over one that is there.
func (t *Tree) File(name, content string) {
	t.tb.Helper()
	t.Dir(filepath.Dir(name))
	must.OK(t.tb, os.WriteFile(filepath.Join(t.root, name), []byte(content), 0o644))
}

// Files writes many files: lines of "name = content".
func (t *Tree) Files(text string) {
	t.tb.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, content, ok := strings.Cut(line, " = ")
		must.Hold(t.tb, ok, "%q is not of the form NAME = CONTENT", line)
		t.File(name, content+"\n")
	}
}

// Link makes a symbolic link to a path from the root, or to the target as it is
// if that starts with a slash. One that is there is replaced.
func (t *Tree) Link(name, target string) {
	t.tb.Helper()
	t.Dir(filepath.Dir(name))
	t.Remove(name)
	if !strings.HasPrefix(target, "/") {
		target = must.Get(filepath.Rel(filepath.Dir(name), target))(t.tb)
	}
	must.OK(t.tb, os.Symlink(target, filepath.Join(t.root, name)))
}

// Remove removes a file or folder, if it is there.
func (t *Tree) Remove(name string) {
	t.tb.Helper()
	must.OK(t.tb, os.RemoveAll(filepath.Join(t.root, name)))
}

// Mode sets permissions.
func (t *Tree) Mode(name string, mode os.FileMode) {
	t.tb.Helper()
	must.OK(t.tb, os.Chmod(filepath.Join(t.root, name), mode))
}

// Function is a PCI function to be made.
type Function struct {
	Address string
	// Behind is the function of the bridge above it.
	Behind         string
	Vendor, Device uint16
	Class          uint32
	// Driver that it is bound to, if any.
	Driver string
	// Group is its IOMMU group, 0 for none.
	Group int
	// Netdev is a network interface of it, if any.
	Netdev string
	// Config is its configuration space; a header is made if it is empty.
	Config []byte
}

// NIC is an unremarkable network controller at 0000:03:00.0 behind a root port,
// with the identity of an emulated Trapeze one.
func NIC() Function {
	return Function{Address: "0000:03:00.0", Behind: "0000:00:1c.0", Vendor: 0x1234, Device: 0x7250, Class: 0x028000, Group: 12}
}

// Dir is where sysfs shows a function.
func Dir(address string) string { return "sys/bus/pci/devices/" + address }

// Function makes a function, and the driver that it is bound to.
func (t *Tree) Function(f Function) {
	t.tb.Helper()
	dir := "sys/devices/pci0000:00/"
	if f.Behind != "" {
		dir += f.Behind + "/"
	}
	dir += f.Address
	t.Link(Dir(f.Address), dir)
	bridge := f.Class>>8 == 0x0604
	if f.Config == nil {
		f.Config = make([]byte, 64)
		f.Config[0], f.Config[1] = byte(f.Vendor), byte(f.Vendor>>8)
		f.Config[2], f.Config[3] = byte(f.Device), byte(f.Device>>8)
		if bridge {
			f.Config[14] = 1
		}
	}
	t.File(dir+"/config", string(f.Config))
	none := strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 5)
	for name, content := range map[string]string{
		"vendor": fmt.Sprintf("%#06x", f.Vendor), "device": fmt.Sprintf("%#06x", f.Device), "class": fmt.Sprintf("%#08x", f.Class),
		"revision": "0x01", "subsystem_vendor": "0x1234", "subsystem_device": "0x0001", "numa_node": "0",
		"driver_override": "(null)", "power_state": "D0", "power/runtime_status": "active", "power/control": "on",
		"current_link_speed": "8.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe", "current_link_width": "4", "max_link_width": "8",
		"resource": "0x00000000fe000000 0x00000000fe00ffff 0x0000000000140204\n" + none,
		"msi_bus":  "1", "dma_mask_bits": "64", "reset_method": "flr bus", "enable": "0",
	} {
		t.File(dir+"/"+name, content+"\n")
	}
	if f.Group > 0 {
		group := "sys/kernel/iommu_groups/" + strconv.Itoa(f.Group)
		t.File(group+"/type", "DMA\n")
		t.File(group+"/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi\n")
		t.Link(group+"/devices/"+f.Address, dir)
		t.Link(dir+"/iommu_group", group)
	}
	if f.Driver != "" {
		t.Driver(f.Driver)
		t.Bind(f.Address, f.Driver)
	}
	if f.Netdev != "" {
		t.Netdev(f.Netdev, dir+"/net/"+f.Netdev)
	}
}

// Netdev makes a network interface at a path of sysfs.
func (t *Tree) Netdev(name, dir string) {
	t.tb.Helper()
	t.File(dir+"/uevent", "INTERFACE="+name+"\n")
	t.Link("sys/class/net/"+name, dir)
}

// Upper puts an interface in software onto another one.
func (t *Tree) Upper(lower, name, kind string) {
	t.tb.Helper()
	dir := "sys/devices/virtual/net/" + name
	t.Netdev(name, dir)
	t.File(dir+"/uevent", "DEVTYPE="+kind+"\nINTERFACE="+name+"\n")
	t.Link("sys/class/net/"+lower+"/upper_"+name, dir)
}

// Driver loads a driver.
func (t *Tree) Driver(name string) {
	t.tb.Helper()
	t.File("sys/bus/pci/drivers/"+name+"/bind", "")
	t.File("sys/bus/pci/drivers/"+name+"/unbind", "")
}

// Bind binds a driver, with what VFIO makes of it.
func (t *Tree) Bind(address, driver string) {
	t.tb.Helper()
	dir := must.Get(os.Readlink(filepath.Join(t.root, Dir(address))))(t.tb) // where the list of devices leads to
	t.Link(filepath.Join("sys/bus/pci/devices", dir, "driver"), "sys/bus/pci/drivers/"+driver)
	if !hostpci.IsVFIO(driver) {
		return
	}
	if group, err := t.Root().Link(Dir(address) + "/iommu_group"); err == nil && group != "" {
		t.File("dev/vfio/vfio", "")
		t.File("dev/vfio/"+group, "")
	}
}

// Process makes a process that has a node open.
func (t *Tree) Process(pid int, name, state, node string) {
	t.tb.Helper()
	dir := fmt.Sprintf("proc/%d", pid)
	t.File(dir+"/comm", name+"\n")
	t.File(dir+"/stat", fmt.Sprintf("%d (%s) %s 1 1 1 0 -1\n", pid, name, state))
	t.Link(dir+"/fd/7", "/"+node)
}
