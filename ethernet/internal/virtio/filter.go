package virtio

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
)

// maxGroups limits the groups that a device is told; with more it receives for all.
const maxGroups = 64

// filters tells the device everything again.
func (d *device) filters(ctx context.Context) error {
	if d.control == nil {
		return nil
	}
	if n := d.options.Queues; n > 1 {
		if err := d.control.pairs(ctx, n); err != nil {
			return err
		}
	}
	f := d.port.Filter()
	if f.MAC != d.info.MAC {
		if err := d.tellMAC(ctx, f.MAC); err != nil {
			return err
		}
	}
	if d.features&transport.FeatureControlReceive == 0 {
		return nil
	}
	if err := d.control.command(ctx, classReceive, promiscuousMode, on(f.Promiscuous)); err != nil {
		return err
	}
	return d.tellGroups(ctx, f.Groups)
}

func (d *device) tellMAC(ctx context.Context, m ethernet.MAC) error {
	switch {
	case d.features&transport.FeatureControlMAC != 0:
		return d.control.command(ctx, classMAC, setMAC, m[:])
	case d.features&transport.FeatureMAC != 0:
		return fmt.Errorf("%w: another address", ethernet.ErrNotSupported)
	}
	return nil // a device without an address receives for all
}

func (d *device) tellGroups(ctx context.Context, groups []ethernet.MAC) error {
	all := len(groups) > maxGroups
	if all {
		groups = nil
	}
	// No station's addresses, then those of groups.
	table := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(groups)))
	for _, g := range groups {
		table = append(table, g[:]...)
	}
	if err := d.control.command(ctx, classMAC, setTable, table); err != nil {
		return err
	}
	return d.control.command(ctx, classReceive, allMulticast, on(all))
}

// Filter implements port.NIC. A device without filters receives all frames, as it does all that
// are tagged.
func (d *device) Filter(ctx context.Context, to, from port.Filter) error {
	if to.VLANs != nil {
		return fmt.Errorf("%w: filters of VLANs", ethernet.ErrNotSupported)
	}
	if to.MAC != from.MAC {
		if err := d.tellMAC(ctx, to.MAC); err != nil {
			return err
		}
	}
	if d.features&transport.FeatureControlReceive == 0 {
		return nil
	}
	if to.Promiscuous != from.Promiscuous {
		if err := d.control.command(ctx, classReceive, promiscuousMode, on(to.Promiscuous)); err != nil {
			return err
		}
	}
	if !slices.Equal(to.Groups, from.Groups) {
		return d.tellGroups(ctx, to.Groups)
	}
	return nil
}
