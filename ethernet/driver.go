package ethernet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Model is a PCI function that a driver is for.
type Model struct {
	Vendor, Device uint16
	Name           string // such as "82576"
	// Tested says that the driver was run on it, hardware or its emulation.
	Tested bool
}

// Driver drives some models of NIC.
type Driver struct {
	Name   string // such as "igb"
	Models []Model
	// Interfaces says that a function may have several interfaces, each a port of its own: see
	// vfio.Interface.
	Interfaces bool
	// Open takes a device of one of the models and makes it ready. The device is the
	// port's from then on: if Open fails it is closed, after the device was stopped.
	Open func(ctx context.Context, dev vfio.Device, m Model, c Options) (Port, error)
	// Board names the board by the subsystem of its PCI function, if one device number stands for
	// many boards; else it is nil.
	Board func(vendor, device uint16) string
}

// Schemes of ports that are no PCI functions, see package drivers.
const (
	SchemeAFXDP     = "afxdp"
	SchemeVhostUser = "vhost-user"
)

// drivers are for PCI functions, openers for ports at addresses of other schemes.
var drivers struct {
	sync.Mutex
	list    []Driver
	openers map[string]func(ctx context.Context, a vfio.Address, c Options) (Port, error)
}

// Register makes a driver known. Drivers call it when they are imported. It panics if
// another driver has the name or one of the models, as two packages then contradict each
// other.
func Register(d Driver) {
	drivers.Lock()
	defer drivers.Unlock()
	for _, m := range d.Models {
		if other, _ := find(m.Vendor, m.Device); other != nil {
			panic(fmt.Sprintf("ethernet: %04x:%04x has two drivers, %s and %s", m.Vendor, m.Device, other.Name, d.Name))
		}
	}
	if slices.ContainsFunc(drivers.list, func(other Driver) bool { return other.Name == d.Name }) {
		panic("ethernet: driver " + d.Name + " registered twice")
	}
	d.Models = slices.Clone(d.Models)
	drivers.list = append(drivers.list, d)
	slices.SortFunc(drivers.list, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
}

// Drivers lists the drivers that are known, by name.
func Drivers() []Driver {
	drivers.Lock()
	defer drivers.Unlock()
	list := slices.Clone(drivers.list)
	for i := range list {
		list[i].Models = slices.Clone(list[i].Models)
	}
	return list
}

// HostDrivers lists them as package hostpci has drivers, a model each: hostpci.Fit takes the list.
func HostDrivers() (list []hostpci.Driver) {
	for _, d := range Drivers() {
		for _, m := range d.Models {
			list = append(list, hostpci.Driver{Name: d.Name, Vendor: m.Vendor, Device: m.Device, Untested: !m.Tested, Board: d.Board})
		}
	}
	return list
}

// find returns the driver for a PCI function and its model; nil if there is none.
// drivers is locked.
func find(vendor, device uint16) (*Driver, Model) {
	for i := range drivers.list {
		for _, m := range drivers.list[i].Models {
			if m.Vendor == vendor && m.Device == device {
				return &drivers.list[i], m
			}
		}
	}
	return nil, Model{}
}

// RegisterScheme makes known how ports are opened at addresses of a scheme that is no
// vfio.Device's, such as vhost-user. Drivers call it when they are imported; Options is
// as the application gave it. It panics if the scheme is taken.
func RegisterScheme(scheme string, open func(ctx context.Context, a vfio.Address, c Options) (Port, error)) {
	drivers.Lock()
	defer drivers.Unlock()
	if drivers.openers[scheme] != nil {
		panic("ethernet: scheme " + scheme + " registered twice")
	}
	if drivers.openers == nil {
		drivers.openers = map[string]func(context.Context, vfio.Address, Options) (Port, error){}
	}
	drivers.openers[scheme] = open
}

// Schemes lists the schemes of RegisterScheme, sorted.
func Schemes() []string {
	drivers.Lock()
	defer drivers.Unlock()
	return slices.Sorted(maps.Keys(drivers.openers))
}

// hostRoot is where Linux shows the PCI functions of this host.
var hostRoot hostpci.Root = "/"

// Open opens the port at an address, see vfio.ParseAddress: that of a scheme that a driver
// has registered, such as vhost-user:/run/vhost0.sock, or of a PCI function that there is a
// driver for. It fails with the errors of the scheme's driver, of vfio.Open and New. A PCI
// function that no driver is for is refused before it is opened.
func Open(ctx context.Context, address string, c Options) (Port, error) {
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, &Error{Op: "open", Device: address, Err: err}
	}
	drivers.Lock()
	open := drivers.openers[a.Scheme]
	drivers.Unlock()
	if open != nil {
		return open(ctx, a, c)
	}
	// Linux says what it is, whichever driver has it. vfio.Open refuses what is not there.
	if a.Scheme == "pci" {
		if f, err := hostpci.Lookup(hostRoot, "pci:"+a.Path); err == nil {
			if hint, err := unfit(f); err != nil {
				return nil, &Error{Op: "open", Device: address, Err: err, Hint: hint}
			}
		}
	}
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return nil, &Error{Op: "open", Device: address, Err: err}
	}
	return New(ctx, dev, c)
}

// New takes a device and makes it ready with the driver that is for it. The device is the
// port's from then on: if New fails it is closed. A device that no driver is for is
// refused with ErrUnsupportedDevice, and is not written to. The hint names what Linux's driver
// offers, and the models that there are drivers for.
func New(ctx context.Context, dev vfio.Device, c Options) (Port, error) {
	address := dev.Info().Address
	fail := func(err error, hint string) (Port, error) {
		return nil, &Error{Op: "open", Device: address, Err: errors.Join(err, dev.Close()), Hint: hint}
	}
	c, err := c.Check()
	if err != nil {
		return fail(err, "")
	}
	config, err := vfio.ReadConfig(dev)
	if err != nil {
		return fail(err, "")
	}
	drivers.Lock()
	d, m := find(config.Vendor, config.Device)
	drivers.Unlock()
	if d == nil {
		hint, err := unfit(hostpci.Function{Vendor: config.Vendor, Device: config.Device, Class: config.Class})
		return fail(err, hint)
	}
	if n := vfio.Interface(dev); n != 0 && !d.Interfaces {
		return fail(&ConfigError{"interface", n, "0: a " + m.Name + " has one interface"}, "")
	}
	return d.Open(ctx, dev, m, c)
}
