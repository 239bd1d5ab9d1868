package hostpci

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	classBridge = 0x06
	// unguardedGroup is the name that VFIO gives to groups without an IOMMU.
	unguardedGroup = "vfio-noiommu"
)

// identify reads what a function is (Documentation/ABI/testing/sysfs-bus-pci). It
// fails with fs.ErrNotExist if there is no such function.
func identify(r Root, address string) (f Function, err error) {
	number := func(name string, bits int, required bool) uint64 {
		text, e := r.Text(path.Join(devices, address, name))
		if errors.Is(e, fs.ErrNotExist) && !required {
			return 0
		}
		v := uint64(0)
		if e == nil {
			if v, e = strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, bits); e != nil {
				e = fmt.Errorf("%s: %w", name, e)
			}
		}
		err = cmp.Or(err, e)
		return v
	}
	f = Function{Address: address, IOMMUGroup: -1, NUMANode: -1}
	f.Vendor, f.Device = uint16(number("vendor", 16, true)), uint16(number("device", 16, true))
	f.Class, f.Revision = uint32(number("class", 24, true)), uint8(number("revision", 8, false))
	f.SubsystemVendor, f.Subsystem = uint16(number("subsystem_vendor", 16, false)), uint16(number("subsystem_device", 16, false))
	return f, err
}

// readBinding reads who has the function, and by what VFIO hands it out.
func (f *Function) readBinding(r Root) (err error) {
	dir := path.Join(devices, f.Address)
	if f.Driver, err = DriverOf(r, f.Address); err != nil {
		return err
	}
	if f.Bridge, err = isBridge(r, f.Address, f.Class); err != nil {
		return err
	}
	return f.readGroup(r, dir)
}

// describe reads what only people want to know.
func (f *Function) describe(r Root, netdevs map[string][]string) (err error) {
	dir := path.Join(devices, f.Address)
	if text := r.Optional(path.Join(dir, "numa_node")); text != "" {
		if f.NUMANode, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("numa_node: %w", err)
		}
	}
	if s := r.Optional(path.Join(dir, "driver_override")); s != "(null)" {
		f.Override = s
	}
	if f.BARs, err = readBARs(r, dir); err != nil {
		return err
	}
	if target, err := os.Readlink(r.Path(dir)); err == nil {
		above := functionsIn(target)
		f.Bridges = above[:max(len(above)-1, 0)]
	}
	f.Link = readLink(r, dir)
	f.Power = PowerOf(r, f.Address)
	if f.SRIOV, err = readSRIOV(r, dir); err != nil {
		return err
	}
	f.Netdevs = append([]string{}, netdevs[f.Address]...)
	return nil
}

// PowerOf reads whether a function is awake; what the kernel does not tell is empty.
func PowerOf(r Root, address string) Power {
	dir := path.Join(devices, address)
	return Power{State: r.Optional(path.Join(dir, "power_state")), Runtime: r.Optional(path.Join(dir, "power/runtime_status")),
		Control: r.Optional(path.Join(dir, "power/control"))}
}

// DriverOf returns the driver of a function, empty for none.
func DriverOf(r Root, address string) (string, error) {
	return r.Link(path.Join(devices, address, "driver"))
}

// Attribute reads a file of a function in sysfs, such as "irq". It is empty if the
// function has none.
func Attribute(r Root, address, name string) string {
	return r.Optional(path.Join(devices, address, name))
}

// Config reads the configuration space of a function: 64 bytes of it without
// privileges, nothing if there is none.
func Config(r Root, address string) ([]byte, error) {
	b, err := os.ReadFile(r.Path(path.Join(devices, address, "config")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Groups counts the IOMMU groups of a host, without those that VFIO has made for
// functions without an IOMMU.
func Groups(r Root) (int, error) {
	names, err := r.Names(groups)
	n := 0
	for _, g := range names {
		if !unguarded(r, g) {
			n++
		}
	}
	return n, err
}

func unguarded(r Root, group string) bool {
	return r.Optional(path.Join(groups, group, "name")) == unguardedGroup
}

// isBridge looks at the header type, which every user may read, and goes by the
// class where there is none.
func isBridge(r Root, address string, class uint32) (bool, error) {
	b, err := Config(r, address)
	switch {
	case err == nil && len(b) >= 16 && b[14] != 0xff:
		return b[14]&0x7f != 0, nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return false, err
	}
	return class>>8 == classBridge<<8|0x04 || class>>8 == classBridge<<8|0x07, nil
}

// resource flags (linux/ioport.h).
const (
	resourceIO       = 0x100
	resourcePrefetch = 0x2000
	resourceWide     = 0x100000
)

// readBARs reads the resource file: start, end and flags, a line each, of which
// the first six are the BARs.
func readBARs(r Root, dir string) ([]BAR, error) {
	var bars []BAR
	lines := strings.Split(r.Optional(path.Join(dir, "resource")), "\n")
	for i, line := range lines[:min(6, len(lines))] {
		if line == "" {
			continue
		}
		var start, end, flags uint64
		if _, err := fmt.Sscan(line, &start, &end, &flags); err != nil {
			return nil, fmt.Errorf("resource: line %d: %q: %w", i+1, line, err)
		}
		if flags == 0 || end <= start || end-start == 1<<64-1 {
			continue
		}
		bars = append(bars, BAR{Index: i, Address: start, Size: end - start + 1,
			IO: flags&resourceIO != 0, Prefetchable: flags&resourcePrefetch != 0, Wide: flags&resourceWide != 0})
	}
	return bars, nil
}

// readLink reads what the link does. Links that are down or unknown read as
// words, which count as 0.
func readLink(r Root, dir string) Link {
	speed := func(name string) float64 {
		s, _, _ := strings.Cut(r.Optional(path.Join(dir, name)), " ")
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v > 0 && v < 1e6) {
			return 0
		}
		return v
	}
	width := func(name string) int {
		// The kernel shows 255 if it cannot tell.
		v, err := strconv.ParseUint(r.Optional(path.Join(dir, name)), 10, 8)
		if err != nil || v == 255 {
			return 0
		}
		return int(v)
	}
	return Link{Speed: speed("current_link_speed"), MaxSpeed: speed("max_link_speed"),
		Width: width("current_link_width"), MaxWidth: width("max_link_width")}
}

func readSRIOV(r Root, dir string) (s SRIOV, err error) {
	for name, to := range map[string]*int{"sriov_numvfs": &s.VFs, "sriov_totalvfs": &s.TotalVFs} {
		text := r.Optional(path.Join(dir, name))
		if text == "" {
			continue
		}
		if *to, err = strconv.Atoi(text); err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
	}
	s.Physical, err = r.Link(path.Join(dir, "physfn"))
	return s, err
}

func (f *Function) readGroup(r Root, dir string) error {
	group, err := r.Link(path.Join(dir, "iommu_group"))
	if err != nil || group == "" {
		return err
	}
	if f.IOMMUGroup, err = strconv.Atoi(group); err != nil {
		return fmt.Errorf("iommu_group: %w", err)
	}
	f.Unguarded = unguarded(r, group)
	names, err := r.Names(path.Join(groups, group, "devices"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == f.Address {
			continue
		}
		m := Member{Address: name}
		if m.Driver, err = DriverOf(r, name); err != nil {
			return err
		}
		class, _ := strconv.ParseUint(r.Optional(path.Join(devices, name, "class")), 0, 24) // no PCI function, or one that is gone, has none
		if m.Bridge, err = isBridge(r, name, uint32(class)); err != nil {
			return err
		}
		f.GroupMembers = append(f.GroupMembers, m)
	}
	f.Backends, err = backends(r, *f)
	return err
}

// DeviceNode is the function's own file in dev by which VFIO hands it out, such as
// "dev/vfio/devices/vfio0"; empty if it has none.
func (f Function) DeviceNode(r Root) (string, error) {
	names, err := r.Names(path.Join(devices, f.Address, "vfio-dev"))
	if err != nil {
		return "", err
	}
	// The folder is there for unguarded functions too, but not the node.
	for _, n := range names {
		if node := "dev/vfio/devices/" + n; r.Exists(node) {
			return node, nil
		}
	}
	return "", nil
}

// GroupNode is where VFIO has the file in dev of the function's IOMMU group, if it
// hands that out; empty for a function without a group.
func (f Function) GroupNode() string {
	switch {
	case f.IOMMUGroup < 0:
		return ""
	case f.Unguarded:
		return fmt.Sprintf("dev/vfio/noiommu-%d", f.IOMMUGroup)
	}
	return fmt.Sprintf("dev/vfio/%d", f.IOMMUGroup)
}

// Nodes are the files in dev by which VFIO hands out a function: its own, if
// there is one, and that of its group.
func (f Function) Nodes(r Root) ([]string, error) {
	own, err := f.DeviceNode(r)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc([]string{own, f.GroupNode()}, func(n string) bool { return n == "" || !r.Exists(n) }), nil
}

// backends lists how the function can be opened now.
func backends(r Root, f Function) ([]string, error) {
	if !IsVFIO(f.Driver) {
		return nil, nil
	}
	nodes, err := f.Nodes(r)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, n := range nodes {
		switch {
		case strings.HasPrefix(n, "dev/vfio/devices/"):
			if !f.Unguarded && r.Exists("dev/iommu") {
				list = append(list, "cdev")
			}
		case !r.Exists("dev/vfio/vfio"):
		case f.Unguarded:
			list = append(list, "noiommu")
		default:
			list = append(list, "group")
		}
	}
	return list, nil
}
