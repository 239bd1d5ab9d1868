package hostpci

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/failure"
)

// ClassNetwork is the PCI base class of network controllers.
const ClassNetwork = 0x02

const (
	devices = "sys/bus/pci/devices"
	groups  = "sys/kernel/iommu_groups"
)

// Function is all that sysfs says of a PCI function.
type Function struct {
	// Address is domain, bus, device and function: "0000:03:00.0".
	Address        string
	Vendor, Device uint16
	// Class is 24 bits: base class, subclass, programming interface.
	Class uint32
	// Driver that is bound to the function, empty for none.
	Driver string
	// IOMMUGroup is -1 if the function is in none: there is no IOMMU then, or it is
	// off.
	IOMMUGroup int
	// NUMANode is -1 if the machine has only one or does not say.
	NUMANode int

	Revision                   uint8
	SubsystemVendor, Subsystem uint16
	// VendorName, DeviceName and ClassName are from the system's list of PCI IDs,
	// empty if it has none or does not know them.
	VendorName, DeviceName, ClassName string
	// Bridge says that it leads to other functions.
	Bridge bool
	// Override is the only driver that the kernel may bind; empty for any.
	Override string
	// Unguarded says that the IOMMU group is one that VFIO has made for a
	// function without an IOMMU.
	Unguarded bool
	// GroupMembers are the other functions of the IOMMU group, sorted.
	GroupMembers []Member
	// Bridges lead to the function, that of the root first.
	Bridges []string
	Link    Link
	// Netdevs are its network interfaces in this network namespace, sorted.
	Netdevs []string
	SRIOV   SRIOV
	Power   Power
	BARs    []BAR
	// Backends of vfio by which it can be opened now: "cdev", "group",
	// "noiommu".
	Backends []string
	// Fits is the driver of ours that is made for it, "" for none; Untested says that it
	// was never run on such a device.
	Fits     string
	Untested bool
	// Board is its name, if the driver knows boards by their subsystem; else it is empty.
	Board string
}

// Title names the function for people: in words as far as the list of PCI IDs has them, and by its IDs.
func (f Function) Title() string {
	words := strings.TrimSpace(f.VendorName + " " + cmp.Or(f.DeviceName, f.ClassName))
	return strings.TrimSpace(fmt.Sprintf("%s [%04x:%04x]", words, f.Vendor, f.Device))
}

// Member is another function of an IOMMU group.
type Member struct {
	Address string `json:"address"`
	// Driver is empty for none.
	Driver string `json:"driver"`
	Bridge bool   `json:"bridge"`
}

// String says who has it.
func (m Member) String() string { return m.Address + " belongs to " + m.Driver }

// Link is a PCI Express link, as it is and as it could be. Speeds are in GT/s;
// everything is 0 for a function without one.
type Link struct {
	Speed    float64 `json:"gt_s"`
	MaxSpeed float64 `json:"max_gt_s"`
	Width    int     `json:"lanes"`
	MaxWidth int     `json:"max_lanes"`
}

// SRIOV says what a function has to do with virtual functions.
type SRIOV struct {
	// VFs of the TotalVFs that it can have are enabled.
	VFs      int `json:"vfs"`
	TotalVFs int `json:"total_vfs"`
	// Physical is the function that a virtual one belongs to, empty otherwise.
	Physical string `json:"physical"`
}

// Power is the state of a function that may be asleep.
type Power struct {
	// State is "D0" (awake) to "D3cold" (off), "unknown", or empty on older
	// kernels, which do not tell.
	State string
	// Runtime is "active", "suspended", or what else
	// Documentation/ABI/testing/sysfs-devices-power lists.
	Runtime string
	// Control is "auto" if the kernel may put it to sleep, "on" if not.
	Control string
}

// BAR is a base address register that has been given addresses.
type BAR struct {
	Index        int    `json:"bar"`
	Address      uint64 `json:"-"`
	Size         uint64 `json:"bytes"`
	IO           bool   `json:"io"`
	Wide         bool   `json:"-"` // 64-bit
	Prefetchable bool   `json:"-"`
}

// Driver is one of ours and what it is made for.
type Driver struct {
	Name           string
	Vendor, Device uint16
	// Untested says that it was never run on such a device.
	Untested bool
	// Board names a board by its subsystem; it may be nil.
	Board func(vendor, device uint16) string
}

// Fit fills in which of our drivers are made for the functions.
func Fit(list []Function, drivers []Driver) {
	for i := range list {
		for _, d := range drivers {
			if list[i].Vendor == d.Vendor && list[i].Device == d.Device {
				list[i].Fits, list[i].Untested = d.Name, d.Untested
				if d.Board != nil {
					list[i].Board = d.Board(list[i].SubsystemVendor, list[i].Subsystem)
				}
			}
		}
	}
}

// IsVFIO says whether a driver hands functions to user space through VFIO: that
// is vfio-pci, and the variants of it for some devices, as mlx5_vfio_pci.
func IsVFIO(driver string) bool {
	return driver == DefaultDriver || strings.HasSuffix(strings.ReplaceAll(driver, "-", "_"), "_vfio_pci")
}

// Blocks says whether the member keeps VFIO from the group. Those without a
// driver do not, nor those whose driver does no DMA: bridges, pci-stub.
func (m Member) Blocks() bool {
	return m.Driver != "" && !m.Bridge && m.Driver != "pci-stub" && m.Driver != "pcieport" && !IsVFIO(m.Driver)
}

// Alone says that the IOMMU guards the function, and that no other one is in its group but bridges.
func (f Function) Alone() bool {
	return f.IOMMUGroup >= 0 && !f.Unguarded && !slices.ContainsFunc(f.GroupMembers, func(m Member) bool { return !m.Bridge })
}

// Blockers are the members that keep VFIO from the function's group.
func (f Function) Blockers() []Member {
	return slices.DeleteFunc(slices.Clone(f.GroupMembers), func(m Member) bool { return !m.Blocks() })
}

// VirtualFunctions lists the addresses of the virtual functions of f.
func (f Function) VirtualFunctions(r Root) []string {
	names, _ := r.Names(path.Join(devices, f.Address)) // without the folder there are none
	var list []string
	for _, n := range names {
		if strings.HasPrefix(n, "virtfn") {
			if address, err := r.Link(path.Join(devices, f.Address, n)); err == nil && address != "" {
				list = append(list, address)
			}
		}
	}
	return list
}

// Functions lists the network controllers, sorted by address, with the names
// of what they are. A host without PCI has none. Functions that disappear
// meanwhile are left out; those that cannot be read are left out too and named
// in the error, which comes with the rest of the list.
func Functions(r Root) ([]Function, error) {
	return list(r, func(f Function) bool { return f.Class>>16 == ClassNetwork })
}

// AllFunctions lists every PCI function, as Functions does.
func AllFunctions(r Root) ([]Function, error) {
	return list(r, func(Function) bool { return true })
}

func list(r Root, wanted func(Function) bool) ([]Function, error) {
	fail := func(err error) error {
		return &failure.Error{Op: "list PCI functions below", Device: string(r), Err: err, Hint: "is sysfs mounted there?"}
	}
	if !r.Exists("sys") {
		return nil, fail(fmt.Errorf("sys: %w", fs.ErrNotExist))
	}
	names, err := r.Names(devices)
	if err != nil {
		return nil, fail(err)
	}
	interfaces, err := readNetdevs(r)
	if err != nil {
		return nil, fail(err)
	}
	var found []Function
	var bad []error
	for _, name := range names {
		if !functionName.MatchString(name) {
			continue
		}
		f, err := identify(r, name)
		if err == nil && !wanted(f) {
			continue
		}
		if err == nil {
			err = f.readBinding(r)
		}
		if err == nil {
			err = f.describe(r, interfaces)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			bad = append(bad, fmt.Errorf("%s: %w", name, err))
		default:
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Function) int {
		return cmp.Or(cmp.Compare(len(a.Address), len(b.Address)), cmp.Compare(a.Address, b.Address))
	})
	nameAll(r, found)
	if err := errors.Join(bad...); err != nil {
		return found, fail(err)
	}
	return found, nil
}

// Find reads what is needed to drive a function, given as ParseAddress takes it:
// its numbers and class, driver, IOMMU group and how VFIO hands it out. It fails
// with ErrNoFunction, and with failure.ErrBadAddress.
func Find(r Root, address string) (Function, error) {
	name, err := ParseAddress(address)
	if err != nil {
		return Function{}, err
	}
	f, err := identify(r, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Function{}, &failure.Error{Op: "find", Device: name, Err: ErrNoFunction, Hint: "trapeze list and lspci -D show which there are"}
	}
	if err == nil {
		err = f.readBinding(r)
	}
	if err != nil {
		return Function{}, &failure.Error{Op: "look at", Device: name, Err: err}
	}
	return f, nil
}

// Lookup is Find, and reads all the rest.
func Lookup(r Root, address string) (Function, error) {
	f, err := Find(r, address)
	if err != nil {
		return Function{}, err
	}
	interfaces, err := readNetdevs(r)
	if err == nil {
		err = f.describe(r, interfaces)
	}
	if err != nil {
		return Function{}, &failure.Error{Op: "look at", Device: f.Address, Err: err}
	}
	one := []Function{f}
	nameAll(r, one)
	return one[0], nil
}
