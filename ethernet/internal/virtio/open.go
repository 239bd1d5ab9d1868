package virtio

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/pci"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/vhostuser"
	"github.com/trapeze-nic/trapeze/vfio"
)

const driverName = "virtio"

// virtio's PCI functions (PCI vendor ID of Red Hat; "PCI Device Discovery"). Transitional
// ones work if they have the structures of version 1.
const (
	pciVendor       = 0x1af4
	pciNetwork      = 0x1041
	pciTransitional = 0x1000
)

// What ring may be in an address. Without it queues are packed if the device has such.
const (
	ringPacked = "packed"
	ringSplit  = "split"
)

// vhostModel is the Info.Model of ports of vhost-user.
const vhostModel = "vhost-user back end"

func init() {
	ethernet.Register(ethernet.Driver{Name: driverName, Open: openPCI, Models: []ethernet.Model{
		{Vendor: pciVendor, Device: pciNetwork, Name: "virtio-net", Tested: true},
		{Vendor: pciVendor, Device: pciTransitional, Name: "virtio-net (transitional)", Tested: true},
	}})
	ethernet.RegisterScheme(ethernet.SchemeVhostUser, openVhost)
}

// openPCI is described at ethernet.Driver.
func openPCI(ctx context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Options) (ethernet.Port, error) {
	info := ethernet.Info{Device: dev.Info().Address, Driver: driverName, Model: m.Name, Tested: m.Tested, Options: c}
	return open(ctx, info, "", func(alert func()) (transport.Transport, error) {
		d, err := pci.New(dev, c.Timeout, alert)
		if err != nil {
			return nil, errors.Join(err, dev.Close())
		}
		return d, nil
	})
}

// open makes a port of the device that connect takes.
func open(ctx context.Context, info ethernet.Info, ring string, connect func(alert func()) (transport.Transport, error)) (ethernet.Port, error) {
	p, err := port.Open(ctx, &device{info: &info, ring: ring, connect: connect}, info)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openVhost connects to the back end of vhost-user at an address, see the package's
// comment, and returns its port. The back end must listen already; Port.Restart connects
// again to one that has ended. It fails with vfio.ErrBadAddress, and the errors of
// ethernet.Open: ErrNotSupported if ring=packed was asked for and there are no such queues.
func openVhost(ctx context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
	address := a.String()
	fail := func(err error, hint string) (ethernet.Port, error) {
		return nil, &ethernet.Error{Op: "open", Device: address, Err: err, Hint: hint}
	}
	ring := a.Options.Get("ring")
	switch {
	case !strings.HasPrefix(a.Path, "/"):
		return fail(fmt.Errorf("%w: path %q", vfio.ErrBadAddress, a.Path), "give the socket's whole path: vhost-user:/path.sock")
	case len(a.Options) > 1 || len(a.Options) == 1 && !a.Options.Has("ring"):
		return fail(fmt.Errorf("%w: an option that there is not", vfio.ErrBadAddress), "the only one is ring=packed or ring=split")
	case a.Options.Has("ring") && ring != ringPacked && ring != ringSplit:
		return fail(fmt.Errorf("%w: ring=%s", vfio.ErrBadAddress, ring), "use ring=packed or ring=split")
	}
	c, err := c.Check()
	if err != nil {
		return fail(err, "")
	}
	info := ethernet.Info{Device: address, Driver: driverName, Model: vhostModel, Tested: true, Options: c}
	return open(ctx, info, ring, func(alert func()) (transport.Transport, error) {
		return vhostuser.New(a.Path, c.Timeout, alert), nil
	})
}
