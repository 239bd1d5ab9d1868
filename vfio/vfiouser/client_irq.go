package vfiouser

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
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

// IRQ is described at vfio.Device.
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
	d.events.set(index, start, own)
	return nil
}

// DisableIRQs is described at vfio.Device.
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
		d.events.clear(index)
	}
	return err
}

// eventfds holds duplicates of the connected eventfds: only we can signal them
// when the server is lost.
type eventfds struct {
	mu  sync.Mutex
	fds map[vectorKey]int
}

type vectorKey struct{ index, vector int }

func (e *eventfds) set(index, start int, fds []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fds == nil {
		e.fds = map[vectorKey]int{}
	}
	for i, fd := range fds {
		k := vectorKey{index, start + i}
		if old, ok := e.fds[k]; ok {
			_ = unix.Close(old)
			delete(e.fds, k)
		}
		if fd >= 0 {
			e.fds[k] = fd
		}
	}
}

// clear forgets the eventfds of an index.
func (e *eventfds) clear(index int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, fd := range e.fds {
		if k.index == index {
			_ = unix.Close(fd)
			delete(e.fds, k)
		}
	}
}

// indexes lists the indexes with connected vectors.
func (e *eventfds) indexes() map[int]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	indexes := map[int]bool{}
	for k := range e.fds {
		indexes[k.index] = true
	}
	return indexes
}

// wake signals all.
func (e *eventfds) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fd := range e.fds {
		passedfd.SignalEventfd(fd)
	}
}

// close forgets all.
func (e *eventfds) close() {
	for index := range e.indexes() {
		e.clear(index)
	}
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
		closeEvent(fd)
	}
}
