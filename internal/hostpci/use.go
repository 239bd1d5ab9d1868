package hostpci

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/failure"
)

// UseKind is a way in which the host uses a function.
type UseKind string

// Ways in which the host uses a function.
const (
	UseAddress      UseKind = "address"       // a network interface has an IP address
	UseRoute        UseKind = "route"         // routes lead over it
	UseDefaultRoute UseKind = "default-route" // a default route leads over it
	UseSession      UseKind = "session"       // who runs this program is logged in over it
	UseEnslaved     UseKind = "enslaved"      // it is a port of a bond, bridge, team or the like
	UseUpper        UseKind = "upper"         // VLANs, macvlans or the like sit on it
	UseMount        UseKind = "mount"         // a file system or disk is reached over it, or is on it
	UseSwap         UseKind = "swap"          // swap space is on it
	// UseHidden: a driver of the kernel's has it and shows no interface here. It
	// may be in another network namespace, where a container uses it.
	UseHidden UseKind = "hidden"
)

// useTexts say a use in words: of a device, and its detail.
var useTexts = map[UseKind]string{
	UseAddress:      "%s has the address %s",
	UseRoute:        "%s has a route to %s",
	UseDefaultRoute: "%s carries the default route %s",
	UseSession:      "%s carries the SSH session from %s",
	UseEnslaved:     "%s belongs to the %s",
	UseUpper:        "%s carries the %s",
	UseMount:        "%s carries %s",
	UseSwap:         "%s holds swap space%s",
	UseHidden:       "%s%s",
}

// Use is one way in which the host uses a function.
type Use struct {
	Kind UseKind
	// Device is the interface or disk, empty if none is known.
	Device string
	// Detail is the address, route, master, mount point ….
	Detail string
}

// CutsOff says that the host may be out of reach once the function is taken away.
func (u Use) CutsOff() bool { return u.Kind == UseDefaultRoute || u.Kind == UseSession }

// String says it in words.
func (u Use) String() string { return fmt.Sprintf(useTexts[u.Kind], u.Device, u.Detail) }

// Uses lists how the host uses a function, nothing if it does not. What cannot
// be seen from here is not in it: other network and mount namespaces, ZFS pools,
// programs that send raw frames; nor routes of other tables than the main one if
// the host is not this one. If some of it cannot be read, that is an error.
func Uses(r Root, f Function) ([]Use, error) {
	uses, err := networkUses(r, f)
	if err == nil {
		var disks []Use
		disks, err = diskUses(r, f.Address)
		uses = append(uses, disks...)
	}
	if err != nil {
		return nil, &failure.Error{Op: "see how the host uses", Device: f.Address, Err: err}
	}
	return uses, nil
}

// passive drivers make no interface, so that none is missed.
var passive = map[string]bool{"": true, "pci-stub": true, "uio_pci_generic": true, "igb_uio": true}

func networkUses(r Root, f Function) ([]Use, error) {
	if len(f.Netdevs) == 0 {
		if f.Class>>16 == ClassNetwork && !passive[f.Driver] && !IsVFIO(f.Driver) {
			return []Use{{Kind: UseHidden, Detail: fmt.Sprintf("the driver %s has it and shows no network interface here: "+
				"it may be in another network namespace", f.Driver)}}, nil
		}
		return nil, nil
	}
	routes, err := readRoutes(r)
	if err != nil {
		return nil, err
	}
	remotes, err := readRemotes(r)
	if err != nil {
		return nil, err
	}
	logins := sessions(r)
	var uses []Use
	for _, netdev := range f.Netdevs {
		uppers, err := uppersOf(r, netdev)
		if err != nil {
			return nil, err
		}
		for _, u := range uppers {
			kind := UseUpper
			if u.master {
				kind = UseEnslaved
			}
			uses = append(uses, Use{kind, u.lower, u.kind + " " + u.name})
		}
		for _, on := range append([]upper{{name: netdev}}, uppers...) {
			more, err := trafficUses(r, on.name, routes, remotes, logins)
			if err != nil {
				return nil, err
			}
			uses = append(uses, more...)
		}
	}
	return uses, nil
}

// trafficUses lists what an interface carries itself.
func trafficUses(r Root, netdev string, routes []route, remotes []remote, logins []session) ([]Use, error) {
	var uses []Use
	addresses, err := addressesOf(r, netdev)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		uses = append(uses, Use{UseAddress, netdev, a})
	}
	for _, e := range routes {
		switch {
		case e.netdev != netdev:
		case e.to.Bits() == 0:
			uses = append(uses, Use{UseDefaultRoute, netdev, e.to.String()})
		default:
			uses = append(uses, Use{UseRoute, netdev, e.to.String()})
		}
	}
	for _, s := range logins {
		if s.client.Zone() == netdev || slices.Contains(addresses, s.server.String()) || slices.Contains(outFor(routes, s.client), netdev) {
			uses = append(uses, Use{UseSession, netdev, s.client.String()})
		}
	}
	for _, m := range remotes {
		if slices.Contains(outFor(routes, m.server), netdev) {
			uses = append(uses, Use{UseMount, netdev, m.what})
		}
	}
	return uses, nil
}

// InUse says whether the host uses the function at an address, also if that cannot
// be seen.
func InUse(r Root, address string) bool {
	f, err := Lookup(r, address)
	if err != nil {
		return true
	}
	uses, err := Uses(r, f)
	return err != nil || len(uses) > 0
}
