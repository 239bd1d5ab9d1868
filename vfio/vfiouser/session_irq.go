package vfiouser

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// irq describes the interrupt index that a message asks for.
func (n *session) irq(c protocol.Command, index uint32) (vfio.IRQInfo, error) {
	if irqs := n.dev.Info().IRQs; uint64(index) >= uint64(irqs) {
		return vfio.IRQInfo{}, protocol.Invalid(c, "index", index, "the device has %d", irqs)
	}
	return n.dev.IRQ(int(index))
}

func (n *session) irqInfo(m *protocol.Message) (reply, error) {
	in, err := protocol.DecodeIRQInfo(m.Payload)
	if err != nil {
		return reply{}, err
	}
	info, err := n.irq(m.Header.Command, in.Index)
	if err != nil {
		return reply{}, err
	}
	n.out = protocol.IRQInfo{Argsz: protocol.IRQInfoSize, Flags: uint32(info.Flags),
		Index: in.Index, Count: uint32(info.Count)}.Append(n.out[:0])
	return reply{payload: n.out}, nil
}

func (n *session) setIRQs(m *protocol.Message) (reply, error) {
	in, err := protocol.DecodeSetIRQs(m.Payload)
	if err != nil {
		return reply{}, err
	}
	if err := n.checkIRQs(m.Header.Command, in, len(m.FDs)); err != nil {
		return reply{}, err
	}
	index, start, count := int(in.Index), int(in.Start), int(in.Count)
	switch {
	case in.Count == 0:
		err = n.call(func() error { return n.dev.DisableIRQs(index) })
		if err == nil {
			n.events.disconnect(index)
		}
	case in.Data == protocol.IRQDataEventfd:
		err = n.connect(index, start, count, m)
	default:
		// No data, or a bool for each: a test of the client's own wiring.
		n.events.trigger(index, start, count, in.Bools)
	}
	return reply{}, err
}

// checkIRQs checks a request against the device.
func (n *session) checkIRQs(c protocol.Command, in protocol.SetIRQs, fds int) error {
	info, err := n.irq(c, in.Index)
	if err != nil {
		return err
	}
	switch {
	case in.Start >= uint32(info.Count):
		return protocol.Invalid(c, "start", in.Start, "index %d has %d vectors", in.Index, info.Count)
	case in.Count > uint32(info.Count)-in.Start:
		return protocol.Invalid(c, "count", in.Count, "index %d has %d vectors from %d on", in.Index, uint32(info.Count)-in.Start, in.Start)
	case in.Action != protocol.IRQActionTrigger:
		return protocol.Invalid(c, "flags", in.Action, "vectors of index %d cannot be masked this way", in.Index)
	case fds > 0 && in.Data != protocol.IRQDataEventfd:
		return protocol.Invalid(c, "flags", in.Data, "the message has %d file descriptors", fds)
	case fds > 0 && uint32(fds) != in.Count:
		return protocol.Invalid(c, "count", in.Count, "the message has %d file descriptors", fds)
	}
	return nil
}

// connect has vectors signal the eventfds that came with m, or nothing if none
// did.
func (n *session) connect(index, start, count int, m *protocol.Message) error {
	fds := m.FDs
	if len(fds) == 0 {
		fds = slices.Repeat([]int{-1}, count)
	}
	for _, fd := range m.FDs {
		if err := passedfd.TakeEventfd(fd); err != nil {
			return err
		}
	}
	if err := n.call(func() error { return n.dev.SetIRQs(index, start, fds) }); err != nil {
		return err
	}
	n.events.connect(index, start, fds)
	m.FDs = nil
	return nil
}
