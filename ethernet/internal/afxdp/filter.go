package afxdp

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// receive has the kernel receive what f selects, besides frames to the interface's own address. These
// are memberships of a socket, so that the kernel forgets them with it (packet(7)). The thread is in
// the namespace. If receive fails nothing is changed.
func (d *device) receive(f port.Filter) error {
	// Protocol 0: it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket AF_PACKET", err)
	}
	socket := os.NewFile(uintptr(fd), "AF_PACKET")
	join := func(kind uint16, m ethernet.MAC) {
		if err != nil {
			return
		}
		r := unix.PacketMreq{Ifindex: int32(d.index), Type: kind, Alen: uint16(len(m))}
		copy(r.Address[:], m[:])
		err = os.NewSyscallError("setsockopt PACKET_ADD_MEMBERSHIP", unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &r))
	}
	if f.MAC != d.own {
		join(unix.PACKET_MR_UNICAST, f.MAC)
	}
	for _, g := range f.Groups {
		join(unix.PACKET_MR_MULTICAST, g)
	}
	if f.Promiscuous {
		join(unix.PACKET_MR_PROMISC, ethernet.MAC{})
	}
	if err != nil {
		_ = socket.Close()
		return err
	}
	old := d.members
	d.members = socket
	if old == nil {
		return nil
	}
	return old.Close()
}

// Filter implements port.NIC. All tagged frames are received that the kernel's driver receives.
func (d *device) Filter(_ context.Context, to, _ port.Filter) error {
	if to.VLANs != nil {
		return fmt.Errorf("%w: a filter of VLANs", ethernet.ErrNotSupported)
	}
	return d.host.do(func() error { return d.receive(to) })
}
