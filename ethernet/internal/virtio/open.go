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
	return port.Open(ctx, &device{info: &info, ring: ring, connect: connect}, info)
}

// openVhost connects to the back end of vhost-user at an address, see the package's
// comment, and returns its port. The back end must listen already; Port.Restart connects
// again to one that has ended. It fails with vfio.ErrBadAddress, and the errors of
// ethernet.Open: ErrNotSupported if ring=packed was asked for and there are no such queues.
func openVhost(ctx context.Context, a vfio.Address, c ethernet.Options) (ethernet.Port, error) {
	if !strings.HasPrefix(a.Path, "/") {
		return nil, a.Refuse(fmt.Errorf("path %q", a.Path), "give the socket's whole path: vhost-user:/path.sock")
	}
	var o struct {
		Ring string `option:"ring" oneof:"packed,split"`
	}
	if err := a.Decode(&o); err != nil {
		return nil, err
	}
	c, err := c.Check()
	if err != nil {
		return nil, &ethernet.Error{Op: "open", Device: a.String(), Err: err}
	}
	info := ethernet.Info{Device: a.String(), Driver: driverName, Model: vhostModel, Tested: true, Options: c}
	return open(ctx, info, o.Ring, func(alert func()) (transport.Transport, error) {
		return vhostuser.New(a.Path, c.Timeout, alert), nil
	})
}
