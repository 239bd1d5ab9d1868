package afxdp

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// What is wrong with an interface, besides the errors of package ethernet; hints go with
// them.
var (
	errNone   = fmt.Errorf("%w: there is no such interface", ethernet.ErrDeviceGone)
	errDown   = fmt.Errorf("%w: the interface is down", ethernet.ErrNotReady)
	errShort  = fmt.Errorf("%w: frames so long", ethernet.ErrNotSupported)
	errQueues = fmt.Errorf("%w: so many queues", ethernet.ErrNotSupported)
	errZero   = fmt.Errorf("%w: zero copy", ethernet.ErrNotSupported)
	errParts  = fmt.Errorf("%w: frames longer than a chunk, which Linux 6.6 and later take", ethernet.ErrNotSupported)
	errLarge  = fmt.Errorf("%w: a program in the driver, with an MTU so large", ethernet.ErrNotSupported)
	errFew    = fmt.Errorf("%w: a program in the driver, with so few receive queues", ethernet.ErrNotSupported)
)

// tested are the kernel's drivers that this was run on: igb and virtio_net as QEMU models
// their devices.
var tested = map[string]bool{"veth": true, "igb": true, "virtio_net": true}

// setUp finds the interface, attaches the program and starts the queues. The thread is in the
// namespace. info is nil for a restart. What setUp leaves when it fails tearDown takes down.
func (d *device) setUp(ctx context.Context, info *ethernet.Info) error {
	// First: what else fails without such sockets does not say so.
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("%w: AF_XDP: %w", ethernet.ErrNotSupported, err)
	} else if err != nil {
		return os.NewSyscallError("socket AF_XDP", err)
	}
	_ = unix.Close(fd)
	a, err := d.host.find(d.name)
	if err != nil {
		return err
	}
	d.index, d.own = a.Index, ethernet.MAC{}
	copy(d.own[:], a.HardwareAddr)
	last := d.options.First + d.config.Queues
	receive, send := d.host.channels(d.name)
	switch n := min(receive, send); {
	case a.EncapType != "ether" || !d.own.IsStation():
		return fmt.Errorf("%w: it is no Ethernet interface (%s, address %q)", ethernet.ErrNotSupported, a.EncapType, a.HardwareAddr)
	case a.RawFlags&unix.IFF_UP == 0:
		return errDown
	case a.MTU < d.config.MTU:
		return fmt.Errorf("%w: Options.MTU is %d, the interface's %d", errShort, d.config.MTU, a.MTU)
	case n > 0 && last > n:
		return fmt.Errorf("%w: number %d is wanted, the interface has %d (%d to receive, %d to send)", errQueues, last-1, n, receive, send)
	}
	if d.program, err = attach(ctx, d, d.index); err != nil {
		return err
	}
	for _, q := range d.queues {
		if err := d.startQueue(ctx, q); err != nil {
			return fmt.Errorf("queue %d: %w", q.number(), err)
		}
	}
	if info != nil {
		d.describe(info)
		d.caution(a)
	}
	return d.receive(d.port.Filter())
}

// describe fills in Info.
func (d *device) describe(info *ethernet.Info) {
	how, copies := "generic XDP", "copying"
	if d.program.native {
		how = "native XDP"
	}
	if d.queues[0].socket.zero {
		copies = "zero copy"
	}
	driver := d.host.driver(d.name)
	info.Model = driver + ", " + how + ", " + copies
	info.Tested = tested[driver]
	info.MAC = d.own
	if d.config.Interrupts {
		info.Vectors = len(d.queues)
	}
}

// startQueue gives a queue a socket, and the program the socket.
func (d *device) startQueue(ctx context.Context, q *queue) error {
	if err := d.patiently(ctx, q.start); err != nil {
		return d.explainBind(err)
	}
	if err := d.program.sockets.Put(uint32(q.number()), uint32(q.socket.fd)); err != nil {
		return fmt.Errorf("map of sockets: %w", err)
	}
	return nil
}

// explainBind makes an error of this package of why a socket could not be bound.
func (d *device) explainBind(err error) error {
	switch {
	case errBusy(err):
		return fmt.Errorf("%w: another socket has the queue: %w", ethernet.ErrInUse, err)
	case d.options.Copy == zero && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)):
		return fmt.Errorf("%w: %w", errZero, err)
	case d.geometry.parts > 1 && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)):
		return fmt.Errorf("%w: %w", errParts, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %w", errQueues, err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOPROTOOPT):
		return fmt.Errorf("%w: AF_XDP: %w", ethernet.ErrNotSupported, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%w: %w", errDown, err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ethernet.ErrDeviceGone, err)
	}
	return err
}

// tearDown takes everything from the kernel.
func (d *device) tearDown() error {
	var errs []error
	if d.program != nil { // first, so that frames go to the kernel again
		errs = append(errs, d.program.close())
		d.program = nil
	}
	for _, q := range d.queues {
		errs = append(errs, q.stop())
	}
	if d.members != nil {
		errs = append(errs, d.members.Close())
		d.members = nil
	}
	return errors.Join(errs...)
}
