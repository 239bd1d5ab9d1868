package ethernet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	// Open takes a device of one of the models and makes it ready. The device is the
	// port's from then on: if Open fails it is closed, after the device was stopped.
	Open func(ctx context.Context, dev vfio.Device, m Model, c Config) (Port, error)
}

var drivers struct {
	sync.Mutex
	list []Driver
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

// Open opens the NIC at an address, see vfio.ParseAddress. It fails with the errors of
// vfio.Open and New.
func Open(ctx context.Context, address string, c Config) (Port, error) {
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return nil, &Error{Op: "open", Device: address, Err: err}
	}
	return New(ctx, dev, c)
}

// New takes a device and makes it ready with the driver that is for it. The device is the
// port's from then on: if New fails it is closed. A device that no driver is for is
// refused with ErrUnsupportedDevice, and a hint that names those that there are drivers
// for; it is not written to.
func New(ctx context.Context, dev vfio.Device, c Config) (Port, error) {
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
		return fail(fmt.Errorf("%w: it is %04x:%04x", ErrUnsupportedDevice, config.Vendor, config.Device), fitting())
	}
	return d.Open(ctx, dev, m, c)
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
		return "no driver is imported: import ethernet/igb, for one"
	}
	return strings.TrimSuffix(b.String(), "; ")
}
