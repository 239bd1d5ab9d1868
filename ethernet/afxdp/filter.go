package afxdp

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// filter says which frames are received besides those to the interface's own address. The
// kernel forgets that when the socket is closed, whose memberships these are (packet(7)).
type filter struct {
	mac         ethernet.MAC // instead of the interface's; zero for that
	groups      []ethernet.MAC
	promiscuous bool
	socket      *os.File
}

func (f *filter) close() error {
	if f.socket == nil {
		return nil
	}
	err := f.socket.Close()
	f.socket = nil
	return err
}

// address is the one of the port. An interface that was made again may have another.
func (f *filter) address(p *port) ethernet.MAC {
	if f.mac != (ethernet.MAC{}) {
		return f.mac
	}
	return p.info.MAC
}

// applyFilter puts a filter in the place of the port's. mu is held and the thread is in
// the namespace. If it fails nothing is changed.
func (p *port) applyFilter(f filter) error {
	// Protocol 0: it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket AF_PACKET", err)
	}
	f.socket = os.NewFile(uintptr(fd), "AF_PACKET")
	join := func(kind uint16, m ethernet.MAC) {
		if err != nil {
			return
		}
		r := unix.PacketMreq{Ifindex: int32(p.index), Type: kind, Alen: uint16(len(m))}
		copy(r.Address[:], m[:])
		err = os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP", unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &r))
	}
	if mac := f.address(p); mac != p.own {
		join(unix.PACKET_MR_UNICAST, mac)
	}
	for _, g := range f.groups {
		join(unix.PACKET_MR_MULTICAST, g)
	}
	if f.promiscuous {
		join(unix.PACKET_MR_PROMISC, ethernet.MAC{})
	}
	if err != nil {
		_ = f.close()
		return err
	}
	old := p.filter
	p.filter = f
	return old.close()
}

// change changes the filter.
func (p *port) change(op string, with func(f *filter) error) error {
	if err := p.usable(); err != nil {
		return err
	}
	defer p.mu.Unlock()
	f := p.filter
	err := with(&f)
	if err == nil {
		err = p.host.do(func() error { return p.applyFilter(f) })
	}
	if err != nil {
		return p.fail(op, err)
	}
	return nil
}

// MAC returns the address that frames are received for.
func (p *port) MAC() ethernet.MAC {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filter.address(p)
}

// SetMAC has frames to another address received, besides those to the interface's own,
// which stays as it is.
func (p *port) SetMAC(m ethernet.MAC) error {
	return p.change("set the address of", func(f *filter) error {
		if !m.IsStation() {
			return &ethernet.ConfigError{Field: "MAC", Value: m, Want: "a station's address, not a group's"}
		}
		f.mac = m
		return nil
	})
}

// SetPromiscuous has all frames received, or ends that.
func (p *port) SetPromiscuous(on bool) error {
	return p.change("set the filter of", func(f *filter) error {
		f.promiscuous = on
		return nil
	})
}

// SetMulticast says which groups frames are received for.
func (p *port) SetMulticast(groups []ethernet.MAC) error {
	return p.change("set the groups of", func(f *filter) error {
		for _, g := range groups {
			if !g.IsGroup() {
				return &ethernet.ConfigError{Field: "groups", Value: g, Want: "addresses of groups"}
			}
		}
		f.groups = slices.Clone(groups)
		return nil
	})
}

// SetVLANs fails with ErrNotSupported but for nil: all tagged frames are received that the
// kernel's driver receives.
func (p *port) SetVLANs(ids []uint16) error {
	if err := p.usable(); err != nil {
		return err
	}
	defer p.mu.Unlock()
	if ids != nil {
		return p.fail("set the VLANs of", fmt.Errorf("%w: a filter of VLANs", ethernet.ErrNotSupported))
	}
	return nil
}
