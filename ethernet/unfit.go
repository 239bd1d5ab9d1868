package ethernet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// unfit says why no driver is for a PCI function, and what can be done with it. The error
// is nil if there is a driver.
func unfit(f hostpci.Function) (hint string, err error) {
	drivers.Lock()
	d, _ := find(f.Vendor, f.Device)
	drivers.Unlock()
	if d != nil {
		return "", nil
	}
	if f.Class>>16 != hostpci.ClassNetwork {
		return "trapeze list shows the NICs of this host",
			fmt.Errorf("%w: %04x:%04x is no network controller (PCI class %06x)", ErrUnsupportedDevice, f.Vendor, f.Device, f.Class)
	}
	name, how := "NAME", "give it back with trapeze unbind, and ip link has its NAME: "
	if len(f.Netdevs) > 0 {
		name, how = f.Netdevs[0], "leave it to "+cmp.Or(f.Driver, "Linux")+": "
	}
	return fmt.Sprintf("%safxdp:%s has its frames, and eth:%s is the wire of a NIC; %s", how, name, name, fitting()),
		fmt.Errorf("%w: it is %04x:%04x", ErrUnsupportedDevice, f.Vendor, f.Device)
}

// fitting names what there are drivers for.
func fitting() string {
	var b strings.Builder
	for _, d := range Drivers() {
		names := make([]string, 0, len(d.Models))
		for _, m := range d.Models {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "%s drives %s; ", d.Name, strings.Join(slices.Compact(names), ", "))
	}
	if b.Len() == 0 {
		return "no driver is imported: import ethernet/drivers"
	}
	return strings.TrimSuffix(b.String(), "; ")
}
