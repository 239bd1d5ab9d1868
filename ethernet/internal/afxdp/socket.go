package afxdp

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp/internal/xskring"
)

// socket is an AF_XDP socket with its rings.
type socket struct {
	fd    int
	alarm *alarm // nil without Options.Interrupts, and until it is bound
	maps  [][]byte
	rings *xskring.Rings
	zero  bool // zero copy
}

// maxRingBytes bounds what is mapped of a ring: 4096 entries of 16 bytes behind their
// indices, with room to spare.
const maxRingBytes = 1 << 20

// newSocket makes a socket and its rings.
func newSocket(d *device) (_ *socket, err error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_XDP", err)
	}
	s := &socket{fd: fd}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	c := d.config
	if err := registerUMEM(fd, d.memory, d.geometry); err != nil {
		return nil, err
	}
	for _, o := range []struct{ option, value int }{
		{unix.XDP_UMEM_FILL_RING, c.ReceiveDescriptors}, {unix.XDP_UMEM_COMPLETION_RING, c.SendDescriptors},
		{unix.XDP_RX_RING, c.ReceiveDescriptors}, {unix.XDP_TX_RING, c.SendDescriptors},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, o.option, o.value); err != nil {
			return nil, os.NewSyscallError(fmt.Sprintf("setsockopt %d", o.option), err)
		}
	}
	return s, s.mapRings(d)
}

// bind makes the socket be that of queue number of the interface. There are buffers in its
// fill ring: drivers that copy nothing look there when they are told of it,
// and some then only when a frame has arrived.
func (s *socket) bind(d *device, number int) error {
	address := unix.SockaddrXDP{Flags: unix.XDP_USE_NEED_WAKEUP, Ifindex: uint32(d.index), QueueID: uint32(number)}
	switch {
	case d.options.Copy == zero:
		address.Flags |= unix.XDP_ZEROCOPY
	case d.options.Copy == copying, d.geometry.unaligned, !d.program.native:
		address.Flags |= unix.XDP_COPY
	}
	if d.geometry.parts > 1 {
		address.Flags |= unix.XDP_USE_SG
	}
	if err := unix.Bind(s.fd, &address); err != nil {
		return os.NewSyscallError("bind AF_XDP", err)
	}
	how, err := socketOption[uint32](s.fd, unix.XDP_OPTIONS)
	if err != nil {
		return err
	}
	s.zero = how&unix.XDP_OPTIONS_ZEROCOPY != 0
	if d.config.Interrupts {
		s.alarm, err = newAlarm(s.fd)
	}
	return err
}

// mapRings maps the four rings. Where the kernel says that they are is checked.
func (s *socket) mapRings(d *device) error {
	at, err := socketOption[unix.XDPMmapOffsets](s.fd, unix.XDP_MMAP_OFFSETS)
	if err != nil {
		return err
	}
	c := d.config
	const word, descriptor = 8, 16 // bytes of an entry
	ring := func(o unix.XDPRingOffset, page int64, entries, bytes int) (xskring.Memory, error) {
		size := o.Desc + uint64(entries*bytes)
		if o.Desc > maxRingBytes || size > maxRingBytes {
			return xskring.Memory{}, fmt.Errorf("%w: a ring begins at %#x", ethernet.ErrProtocol, o.Desc)
		}
		b, err := unix.Mmap(s.fd, page, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return xskring.Memory{}, os.NewSyscallError("mmap", err)
		}
		s.maps = append(s.maps, b)
		return xskring.Memory{Bytes: b, Producer: o.Producer, Consumer: o.Consumer, Flags: o.Flags, Descriptor: o.Desc, Entries: entries}, nil
	}
	o := xskring.Options{Buffers: d.config.Pool.Options().Buffers, Stride: uint32(d.config.Pool.Stride()), Chunk: d.geometry.chunk, Unaligned: d.geometry.unaligned}
	if o.Fill, err = ring(at.Fr, unix.XDP_UMEM_PGOFF_FILL_RING, c.ReceiveDescriptors, word); err != nil {
		return err
	}
	if o.Completion, err = ring(at.Cr, unix.XDP_UMEM_PGOFF_COMPLETION_RING, c.SendDescriptors, word); err != nil {
		return err
	}
	if o.Receive, err = ring(at.Rx, unix.XDP_PGOFF_RX_RING, c.ReceiveDescriptors, descriptor); err != nil {
		return err
	}
	if o.Send, err = ring(at.Tx, unix.XDP_PGOFF_TX_RING, c.SendDescriptors, descriptor); err != nil {
		return err
	}
	if s.rings, err = xskring.New(o); err != nil {
		return fmt.Errorf("%w: %w", ethernet.ErrProtocol, err)
	}
	return nil
}

// statistics adds what the kernel has counted for the socket. A frame that finds no buffer is among
// those dropped, and Rx_fill_ring_empty_descs counts looks at the empty ring.
func (s *socket) statistics(d *ethernet.DeviceStats) {
	if n, err := socketOption[unix.XDPStatistics](s.fd, unix.XDP_STATISTICS); err == nil {
		d.Missed += n.Rx_dropped + n.Rx_ring_full
		d.ReceiveErrors += n.Rx_invalid_descs
	}
}

// close gives the socket back. When it returns the kernel copies nothing to buffers any
// more; a device may, see quiesce.
func (s *socket) close() error {
	var errs []error
	for _, b := range s.maps { // a mapping would keep the socket
		errs = append(errs, unix.Munmap(b))
	}
	s.maps = nil
	if s.alarm != nil {
		errs = append(errs, s.alarm.close())
	}
	return errors.Join(append(errs, unix.Close(s.fd))...)
}
