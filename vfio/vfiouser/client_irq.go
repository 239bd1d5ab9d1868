package vfiouser

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// findIRQ returns interrupt index index.
func (d *client) findIRQ(index int) (vfio.IRQInfo, error) {
	if d.closed.Load() {
		return vfio.IRQInfo{}, vfio.ErrClosed
	}
	x := d.device.Load()
	if index < 0 || index >= len(x.irqs) {
		return vfio.IRQInfo{}, fmt.Errorf("%w: index %d", vfio.ErrNoSuchIRQ, index)
	}
	return x.irqs[index], nil
}

func (d *client) IRQ(index int) (vfio.IRQInfo, error) {
	info, err := d.findIRQ(index)
	if err != nil {
		return info, d.fail("describe interrupt", err)
	}
	return info, nil
}

// SetIRQs is described at vfio.Device. If the server fails half-way, some
// vectors are connected and others not.
func (d *client) SetIRQs(index, start int, eventfds []int) error {
	const op = "connect interrupts"
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := d.findIRQ(index)
	if err != nil {
		return d.fail(op, err)
	}
	if start < 0 || start > info.Count || len(eventfds) > info.Count-start {
		return d.fail(op, fmt.Errorf("%w: %d vectors from %d on, index %d has %d", vfio.ErrNoSuchIRQ, len(eventfds), start, index, info.Count))
	}
	most := int(min(d.device.Load().capabilities.MaxMsgFDs, clientMaxFDs))
	for len(eventfds) > 0 {
		n := sameKind(eventfds, most)
		if n == 0 {
			return d.failHint(op, vfio.ErrNotSupported, "the server takes no file descriptors")
		}
		if err := d.setSomeIRQs(index, start, eventfds[:n]); err != nil {
			return d.fail(op, err)
		}
		start, eventfds = start+n, eventfds[n:]
	}
	return nil
}

// sameKind returns how many of the first eventfds can go into one message: all
// have a descriptor, and then at most most, or none has.
func sameKind(eventfds []int, most int) int {
	n := 0
	for n < len(eventfds) && (eventfds[n] < 0) == (eventfds[0] < 0) && (eventfds[0] < 0 || n < most) {
		n++
	}
	return n
}

// setSomeIRQs is SetIRQs for one message. mu is held.
func (d *client) setSomeIRQs(index, start int, eventfds []int) error {
	own, err := duplicate(eventfds)
	if err != nil {
		return err
	}
	m := protocol.SetIRQs{Data: protocol.IRQDataEventfd, Action: protocol.IRQActionTrigger,
		Index: uint32(index), Start: uint32(start), Count: uint32(len(eventfds))}
	var fds []int
	if eventfds[0] >= 0 {
		fds = eventfds
	}
	_, err = d.ask(d.life, protocol.CommandSetIRQs, m.Append(nil), fds...)
	if err != nil {
		closeEvents(own)
		return err
	}
	d.events.connect(index, start, own)
	return nil
}

func (d *client) DisableIRQs(index int) error {
	const op = "disconnect interrupts"
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := d.findIRQ(index)
	if err != nil {
		return d.fail(op, err)
	}
	if info.Count > 0 {
		if err := d.disable(index); err != nil {
			return d.fail(op, err)
		}
	}
	return nil
}

func (d *client) disable(index int) error {
	m := protocol.SetIRQs{Data: protocol.IRQDataNone, Action: protocol.IRQActionTrigger, Index: uint32(index)}
	_, err := d.ask(d.life, protocol.CommandSetIRQs, m.Append(nil))
	if err == nil {
		d.events.disconnect(index)
	}
	return err
}

// duplicate duplicates descriptors, all or none; negative ones stay as they are.
func duplicate(fds []int) ([]int, error) {
	own := make([]int, 0, len(fds))
	for _, fd := range fds {
		if fd >= 0 {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				closeEvents(own)
				return nil, fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("fcntl", err))
			}
			fd = dup
		}
		own = append(own, fd)
	}
	return own, nil
}

func closeEvents(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
