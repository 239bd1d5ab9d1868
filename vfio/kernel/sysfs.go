package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// function is a PCI function as sysfs shows it.
type function struct {
	address string
	driver  string // empty for none
	group   int    // IOMMU group, -1 for none
	// unguarded says that the group is one that VFIO made for a function without
	// an IOMMU.
	unguarded bool
	cdev      string // such as "vfio0"; empty if it has no node of its own
}

// files reads sysfs, proc and the names of nodes below a folder, normally "/".
type files struct{ root string }

func (f files) path(elements ...string) string {
	return filepath.Join(append([]string{f.root}, elements...)...)
}

// node is the path of a device node, such as "vfio/vfio".
func (f files) node(name string) string { return f.path("dev", name) }

func (f files) exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (f files) pci(address string, elements ...string) string {
	return f.path(append([]string{"sys/bus/pci/devices", address}, elements...)...)
}

// function reads what sysfs says of a function. It fails with fs.ErrNotExist if
// there is none.
func (f files) function(address string) (function, error) {
	fn := function{address: address, group: -1}
	if _, err := os.Stat(f.pci(address)); err != nil {
		return fn, err
	}
	fn.driver = f.link(f.pci(address, "driver"))
	if group := f.link(f.pci(address, "iommu_group")); group != "" {
		n, err := strconv.Atoi(group)
		if err != nil {
			return fn, err
		}
		fn.group = n
		fn.unguarded = f.text(f.pci(address, "iommu_group", "name")) == "vfio-noiommu"
	}
	// The folder is there for unguarded functions too, but not the node.
	entries, err := os.ReadDir(f.pci(address, "vfio-dev"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fn, err
	}
	for _, e := range entries {
		if f.exists(f.node("vfio/devices/" + e.Name())) {
			fn.cdev = e.Name()
		}
	}
	return fn, nil
}

// link returns the last element of what a symbolic link points to, empty if
// there is no such link.
func (f files) link(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// text returns the content of a file without white space around it, empty if it
// cannot be read.
func (f files) text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// member is a function in an IOMMU group.
type member struct{ address, driver string }

// harmless lists drivers that may stay bound to a member of a group that VFIO
// hands out (vfio(4) calls such a group viable). Variants of vfio-pci have it
// in their name.
var harmless = map[string]bool{"": true, "pci-stub": true, "pcieport": true}

// blocks reports whether the member's driver keeps VFIO from the group.
func (m member) blocks() bool {
	return !harmless[m.driver] && !isVFIO(m.driver)
}

// isVFIO reports whether a driver is vfio-pci or a variant of it.
func isVFIO(driver string) bool {
	return driver == "vfio-pci" || strings.HasSuffix(driver, "-vfio-pci") || strings.HasSuffix(driver, "_vfio_pci")
}

// members lists the functions of a group, sorted by address.
func (f files) members(group int) []member {
	dir := f.path("sys/kernel/iommu_groups", strconv.Itoa(group), "devices")
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil
	}
	var list []member
	for _, e := range entries {
		list = append(list, member{e.Name(), f.link(f.pci(e.Name(), "driver"))})
	}
	return list
}

// endpoints lists the functions of a group that are no bridges, sorted.
func (f files) endpoints(group int) []string {
	const classBridge = "0x06"
	var list []string
	for _, m := range f.members(group) {
		if !strings.HasPrefix(f.text(f.pci(m.address, "class")), classBridge) {
			list = append(list, m.address)
		}
	}
	return list
}
