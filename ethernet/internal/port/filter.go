package port

import (
	"context"
	"slices"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// Filter selects the frames that a port receives.
type Filter struct {
	MAC         ethernet.MAC
	Promiscuous bool
	Groups      []ethernet.MAC // besides broadcast
	VLANs       []uint16       // nil: all
}

// Filter returns the filter of the port. Mu is held. Until an address is set, it is that of
// Options.MAC, or else that of Info.
func (p *Port) Filter() Filter {
	f := p.filter
	if f.MAC == (ethernet.MAC{}) {
		f.MAC = p.info.MAC
	}
	return f
}

func (p *Port) MAC() ethernet.MAC {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Filter().MAC
}

// refilter changes the filter. If the device refuses, the filter stays.
func (p *Port) refilter(op string, change func(f *Filter) error) error {
	return p.Do(op, func(ctx context.Context) error {
		from := p.Filter()
		to := from
		err := change(&to)
		if err == nil {
			err = p.nic.Filter(ctx, to, from)
		}
		if err == nil {
			p.filter = to
		}
		return err
	})
}

func (p *Port) SetMAC(m ethernet.MAC) error {
	return p.refilter("set the address of", func(f *Filter) error {
		f.MAC = m
		if !m.IsStation() {
			return &ethernet.ConfigError{Field: "MAC", Value: m, Want: "a station's address, not a group's"}
		}
		return nil
	})
}

func (p *Port) SetPromiscuous(on bool) error {
	return p.refilter("set promiscuous mode of", func(f *Filter) error {
		f.Promiscuous = on
		return nil
	})
}

func (p *Port) SetMulticast(groups []ethernet.MAC) error {
	return p.refilter("set the groups of", func(f *Filter) error {
		f.Groups = slices.Clone(groups)
		for _, g := range groups {
			if !g.IsMulticast() {
				return &ethernet.ConfigError{Field: "groups", Value: g, Want: "group addresses"}
			}
		}
		return nil
	})
}

func (p *Port) SetVLANs(ids []uint16) error {
	return p.refilter("set the VLANs of", func(f *Filter) error {
		f.VLANs = slices.Clone(ids)
		for _, id := range ids {
			if id > 4095 {
				return &ethernet.ConfigError{Field: "ids", Value: id, Want: "0 to 4095"}
			}
		}
		return nil
	})
}
