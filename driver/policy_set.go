package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/pump"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
	"github.com/trapeze-nic/trapeze/vfio"
)

// SetPolicy chooses the delivery policy of the NIC and where it runs. Frames in
// progress are moved on by the policy that the device has built in. It fails
// with ErrInvalidParameter, or with ErrNotSupported if the device cannot do
// it; then nothing has changed.
func (n *NIC) SetPolicy(p Policy) error {
	const op = "set policy"
	plan, err := p.plan()
	if err != nil {
		return n.error(op, err)
	}
	return n.inDMA(op, func() error { return n.setPolicy(p, plan) })
}

// setPolicy is SetPolicy with dma.mu held, for a policy that can be.
func (n *NIC) setPolicy(p Policy, plan pipeline.Plan) error {
	if n.dma.own == nil {
		own, err := n.readBuiltIn()
		if err != nil {
			return err
		}
		n.dma.own = &own
	}
	before, err := n.regs.read(n.background, datasheet.BlockDMA, datasheet.RegPulseDeadline)
	if err == nil && p.Deadline != 0 {
		err = n.setDMA(datasheet.RegPulseDeadline, uint32(p.Deadline/time.Microsecond), "a pulse deadline of %d us")
	}
	if err != nil {
		return err
	}
	if p.At == AtHost {
		err = n.decideAtHost(p, plan)
	} else {
		err = n.decideAtNIC(p)
	}
	if err != nil && p.Deadline != 0 {
		_ = n.regs.write(datasheet.BlockDMA, datasheet.RegPulseDeadline, before)
	}
	return err
}

// decideAtNIC has the device decide by itself. dma.mu is held.
func (n *NIC) decideAtNIC(p Policy) error {
	before, err := n.readBuiltIn()
	if err != nil {
		return err
	}
	want := *n.dma.own
	if number, ok := builtIn(p.Name); ok {
		want = builtInPolicies{uint32(number), uint32(number), before.minPulseTx, before.minPulseRx}
		if send, receive := p.sizes(); send != 0 {
			want.minPulseTx, want.minPulseRx = uint32(send), uint32(receive)
		}
	}
	if err := n.writeBuiltIn(before, want); err != nil {
		// What was taken is undone.
		now, rerr := n.readBuiltIn()
		if rerr == nil {
			_ = n.writeBuiltIn(now, before)
		}
		return err
	}
	return n.stopPump()
}

func (n *NIC) writeBuiltIn(from, to builtInPolicies) error {
	old := from.registers()
	for i, r := range to.registers() {
		if *r.v == *old[i].v {
			continue
		}
		if err := n.setDMA(r.reg, *r.v, r.what); err != nil {
			return err
		}
	}
	return nil
}

// decideAtHost has a pump decide. dma.mu is held.
func (n *NIC) decideAtHost(p Policy, plan pipeline.Plan) error {
	if err := n.prepareProgress(); err != nil {
		return err
	}
	send, receive := n.pulseAt(datasheet.RegPulseTx), n.pulseAt(datasheet.RegPulseRx)
	next, err := pump.New(pump.Setup{Plan: plan, Area: n.dma.area.Bytes(), Pulse: [2]func(uint32, uint32){send.pulse, receive.pulse},
		Longest: uint32(n.identity.MTU - datasheet.HeaderSize), Failed: n.failed, GiveUp: n.fallBack})
	if err != nil {
		return err
	}
	if err := n.stopPump(); err != nil {
		return err
	}
	clear(n.dma.area.Bytes()[:datasheet.ProgressAreaSize])
	n.dma.host = p
	n.pump.Store(next)
	n.regions.mark(unusualPump)
	if err := n.setDMAControl(datasheet.DMAControlHostTx|datasheet.DMAControlHostRx, 0); err != nil {
		return errors.Join(err, n.stopPump())
	}
	n.goroutines.Go(next.Run)
	return nil
}

// prepareProgress gives the device memory for its progress counters, once.
func (n *NIC) prepareProgress() error {
	if n.dma.area != nil {
		return nil
	}
	area, err := n.space.Ring(n.background, datasheet.ProgressAreaSize, vfio.DMARead|vfio.DMAWrite)
	if err != nil {
		return err
	}
	if err := n.setAddress(datasheet.RegProgressLow, area.IOVA, "progress counters"); err != nil {
		return err // the memory is kept until Close: the device may have taken half of the address
	}
	n.dma.area = area
	return nil
}

// stopPump has the device decide by itself again. dma.mu is held.
func (n *NIC) stopPump() error {
	n.dma.cause = nil
	p := n.pump.Swap(nil)
	if p == nil {
		return nil
	}
	n.regions.unmark(unusualPump)
	p.Stop()
	return n.setDMAControl(0, datasheet.DMAControlHostTx|datasheet.DMAControlHostRx)
}

// fallBack has the device decide, because it has told the pump nonsense.
func (n *NIC) fallBack(p *pump.Pump, cause error) {
	n.dma.mu.Lock()
	defer n.dma.mu.Unlock()
	if n.pump.Load() != p {
		return
	}
	err := n.stopPump()
	cause = fmt.Errorf("%w: %w", ErrProtocol, cause)
	n.dma.cause = cause
	n.log.Warn("the NIC decides by itself again: its progress counters make no sense", "err", cause, "register", err)
}

// inDMA carries out f, an operation on the DMA block.
func (n *NIC) inDMA(op string, f func() error) error {
	return n.alone(n.background, op, datasheet.BlockDMA, &n.dma.mu, "it has no DMA engine block",
		"it goes on with the policy that it has", f)
}

func (n *NIC) readBuiltIn() (b builtInPolicies, err error) {
	for _, r := range b.registers() {
		if err = n.regs.readAll(n.background, datasheet.BlockDMA, r.reading); err != nil {
			break
		}
	}
	return b, err
}

// setDMA writes a register and looks whether the device took it: it ignores
// what it does not know. what is a format for the value.
func (n *NIC) setDMA(reg uint64, v uint32, what string) error {
	if err := n.regs.write(datasheet.BlockDMA, reg, v); err != nil {
		return err
	}
	got, err := n.regs.read(n.background, datasheet.BlockDMA, reg)
	if err != nil {
		return err
	}
	if got != v {
		if _, err := n.regs.status(n.background); err != nil {
			return n.fail(err)
		}
		return fmt.Errorf("%w: it does not take "+what, descriptors.ErrNotSupported, v)
	}
	return nil
}

// setAddress writes the two registers from reg on that have the bus address of what.
func (n *NIC) setAddress(reg, iova uint64, what string) error {
	err := n.setDMA(reg, uint32(iova), what+" at bus address (low half) %#x")
	if err == nil {
		err = n.setDMA(reg+4, uint32(iova>>32), what+" at bus address (high half) %#x")
	}
	return err
}

func (n *NIC) setDMAControl(set, clear uint32) error {
	v, err := n.regs.read(n.background, datasheet.BlockDMA, datasheet.RegDMAControl)
	if err != nil {
		return err
	}
	return n.setDMA(datasheet.RegDMAControl, v&^clear|set, "DMA control %#x")
}
