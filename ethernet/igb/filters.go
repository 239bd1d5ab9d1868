package igb

import (
	"context"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// filter says which frames are received.
type filter struct {
	mac         ethernet.MAC
	promiscuous bool
	groups      []ethernet.MAC
	vlans       []uint16 // nil: all
}

// MAC implements ethernet.Port.
func (p *port) MAC() ethernet.MAC {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filter.mac
}

// refilter changes the filter; if the device does not take it, it stays what it was.
func (p *port) refilter(op string, change func(f *filter)) error {
	return p.do(op, func(ctx context.Context) error {
		before := p.filter
		change(&p.filter)
		err := p.kind.filter(ctx, p)
		if err == nil {
			err = p.regs.take()
		}
		if err != nil {
			p.filter = before
		}
		return err
	})
}

// SetMAC implements ethernet.Port.
func (p *port) SetMAC(m ethernet.MAC) error {
	const op = "set the address of"
	if !m.IsStation() {
		return p.error(op, &ethernet.ConfigError{Field: "MAC", Value: m, Want: "a station's address, not a group's"})
	}
	return p.refilter(op, func(f *filter) { f.mac = m })
}

// SetPromiscuous implements ethernet.Port.
func (p *port) SetPromiscuous(on bool) error {
	return p.refilter("set promiscuous mode of", func(f *filter) { f.promiscuous = on })
}

// SetMulticast implements ethernet.Port.
func (p *port) SetMulticast(groups []ethernet.MAC) error {
	const op = "set groups of"
	for _, g := range groups {
		if !g.IsGroup() {
			return p.error(op, &ethernet.ConfigError{Field: "groups", Value: g, Want: "group addresses"})
		}
	}
	return p.refilter(op, func(f *filter) { f.groups = append([]ethernet.MAC(nil), groups...) })
}

// SetVLANs implements ethernet.Port.
func (p *port) SetVLANs(ids []uint16) error {
	const op = "set VLANs of"
	for _, id := range ids {
		if id > 4095 {
			return p.error(op, &ethernet.ConfigError{Field: "ids", Value: id, Want: "0 to 4095"})
		}
	}
	return p.refilter(op, func(f *filter) {
		f.vlans = nil
		if ids != nil {
			f.vlans = append([]uint16{}, ids...)
		}
	})
}
