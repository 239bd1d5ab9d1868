package virtio

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/virtio/internal/transport"
)

// filter says which frames are received besides those to the port's address.
type filter struct {
	promiscuous bool
	groups      []ethernet.MAC
}

// maxGroups is how many groups are told to a device; with more it receives for all.
const maxGroups = 64

// filters tells the device everything again.
func (p *port) filters(ctx context.Context) error {
	if p.control == nil {
		return nil
	}
	if p.config.Queues > 1 {
		if err := p.control.pairs(ctx, p.config.Queues); err != nil {
			return err
		}
	}
	if p.mac != p.info.MAC {
		if err := p.tellMAC(ctx); err != nil {
			return err
		}
	}
	if p.features&transport.FeatureControlReceive == 0 {
		return nil
	}
	if err := p.control.command(ctx, classReceive, promiscuousMode, on(p.filter.promiscuous)); err != nil {
		return err
	}
	return p.tellGroups(ctx)
}

func (p *port) tellMAC(ctx context.Context) error {
	switch {
	case p.features&transport.FeatureControlMAC != 0:
		return p.control.command(ctx, classMAC, setMAC, p.mac[:])
	case p.features&transport.FeatureMAC != 0:
		return fmt.Errorf("%w: another address", ethernet.ErrNotSupported)
	}
	return nil // a device without an address receives for all
}

func (p *port) tellGroups(ctx context.Context) error {
	groups := p.filter.groups
	all := len(groups) > maxGroups
	if all {
		groups = nil
	}
	// No station's addresses, then those of groups.
	table := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(groups)))
	for _, g := range groups {
		table = append(table, g[:]...)
	}
	if err := p.control.command(ctx, classMAC, setTable, table); err != nil {
		return err
	}
	return p.control.command(ctx, classReceive, allMulticast, on(all))
}

// change changes what the device is to know, and undoes that if it fails.
func (p *port) change(op string, do func(ctx context.Context) error, undo func()) error {
	if err := p.usable(); err != nil {
		return err
	}
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), p.config.Timeout)
	defer cancel()
	if err := do(ctx); err != nil {
		undo()
		return p.fail(op, err)
	}
	return nil
}

// SetMAC changes the address that frames are received for.
func (p *port) SetMAC(m ethernet.MAC) error {
	var old ethernet.MAC
	return p.change("set the address of", func(ctx context.Context) error {
		if !m.IsStation() {
			return &ethernet.ConfigError{Field: "MAC", Value: m, Want: "a station's address, not a group's"}
		}
		old, p.mac = p.mac, m
		return p.tellMAC(ctx)
	}, func() {
		if old != (ethernet.MAC{}) {
			p.mac = old
		}
	})
}

// SetPromiscuous has all frames received, or ends that. A device without filters receives
// all of them anyway.
func (p *port) SetPromiscuous(v bool) error {
	old := !v
	return p.change("set the filter of", func(ctx context.Context) error {
		old, p.filter.promiscuous = p.filter.promiscuous, v
		if p.features&transport.FeatureControlReceive == 0 {
			return nil
		}
		return p.control.command(ctx, classReceive, promiscuousMode, on(v))
	}, func() { p.filter.promiscuous = old })
}

// SetMulticast says which groups frames are received for.
func (p *port) SetMulticast(groups []ethernet.MAC) error {
	var old []ethernet.MAC
	return p.change("set the groups of", func(ctx context.Context) error {
		old = p.filter.groups
		for _, g := range groups {
			if !g.IsGroup() {
				return &ethernet.ConfigError{Field: "groups", Value: g, Want: "addresses of groups"}
			}
		}
		p.filter.groups = slices.Clone(groups)
		if p.features&transport.FeatureControlReceive == 0 {
			return nil
		}
		return p.tellGroups(ctx)
	}, func() { p.filter.groups = old })
}

// SetVLANs fails with ErrNotSupported but for nil: all tagged frames are received.
func (p *port) SetVLANs(ids []uint16) error {
	return p.change("set the VLANs of", func(context.Context) error {
		if ids == nil {
			return nil
		}
		return fmt.Errorf("%w: filters of VLANs", ethernet.ErrNotSupported)
	}, func() {})
}
