package guest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

const pciDevices = "/sys/bus/pci/devices"

// Devices of QEMU, by PCI vendor and device.
const (
	eduID   = "0x1234 0x11e8"
	e1000ID = "0x8086 0x100e"
	rngID   = "0x1af4 0x1044" // virtio
	igbID   = "0x8086 0x10c9"
	igbVFID = "0x8086 0x10ca"
)

func attribute(function, name string) string {
	b, err := os.ReadFile(filepath.Join(pciDevices, function, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// find lists functions by vendor and device, sorted.
func find(t *testing.T, id string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(pciDevices))(t)
	var list []string
	for _, e := range entries {
		if attribute(e.Name(), "vendor")+" "+attribute(e.Name(), "device") == id {
			list = append(list, e.Name())
		}
	}
	return list
}

func link(function, name string) string {
	target, err := os.Readlink(filepath.Join(pciDevices, function, name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func group(t *testing.T, function string) int {
	t.Helper()
	return must.Get(strconv.Atoi(link(function, "iommu_group")))(t)
}

// alone returns a function of that kind that has an IOMMU group of its own; on
// the root bus or behind a port.
func alone(t *testing.T, id string, behindPort bool) string {
	t.Helper()
	for _, f := range find(t, id) {
		bus := !strings.HasPrefix(f, "0000:00:")
		if bus == behindPort && len(groupMembers(t, f)) == 1 {
			return f
		}
	}
	t.Fatalf("no function %s alone in its group", id)
	return ""
}

// groupMembers lists the functions of a function's group, without bridges. A
// function that is not bound to VFIO may have no group if there is no IOMMU.
func groupMembers(t *testing.T, function string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(pciDevices, function, "iommu_group/devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return []string{function}
	}
	must.OK(t, err)
	var list []string
	for _, e := range entries {
		if !strings.HasPrefix(attribute(e.Name(), "class"), "0x0604") {
			list = append(list, e.Name())
		}
	}
	return list
}

// together returns two functions of that kind that share an IOMMU group.
func together(t *testing.T, id string) (string, string) {
	t.Helper()
	all := find(t, id)
	for i, f := range all {
		for _, g := range all[i+1:] {
			if group(t, f) == group(t, g) {
				return f, g
			}
		}
	}
	t.Fatalf("no two functions %s in one group", id)
	return "", ""
}

// nodeOf returns the path of a function's own node below /dev/vfio/devices,
// empty if it has none.
func nodeOf(function string) string {
	entries, err := os.ReadDir(filepath.Join(pciDevices, function, "vfio-dev"))
	if err != nil || len(entries) == 0 {
		return ""
	}
	node := filepath.Join("/dev/vfio/devices", entries[0].Name())
	if _, err := os.Stat(node); err != nil {
		return ""
	}
	return node
}

func write(t *testing.T, value string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	must.OK(t, os.WriteFile(name, []byte(value), 0), "write %q", value)
	t.Logf("wrote %q to %s", value, name)
}

// bind gives a function to a driver, by driver_override; "" lets the kernel
// choose, "none" takes it from its driver.
func bind(t *testing.T, function, driver string) {
	t.Helper()
	now := link(function, "driver")
	if now == driver && driver != "" {
		return
	}
	override := driver
	if driver == "" {
		override = "\n"
	}
	write(t, override, pciDevices, function, "driver_override")
	if now != "" {
		write(t, function, pciDevices, function, "driver/unbind")
	}
	if driver == "none" {
		return
	}
	write(t, function, "/sys/bus/pci/drivers_probe")
	if driver == "" {
		return
	}
	must.Be(t, link(function, "driver"), driver, "%s has driver", function)
	// The nodes are made by the kernel's own thread.
	time.Sleep(10 * time.Millisecond)
}
