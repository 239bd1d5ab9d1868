package driver

import (
	"errors"
	"time"

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
	next, err := n.newPump(plan)
	if err != nil {
		return err
	}
	if err := n.stopPump(); err != nil {
		return err
	}
	clear(n.dma.area.mem.Bytes()[:datasheet.ProgressAreaSize])
	n.dma.host = p
	n.pump.Store(next)
	n.regions.mark(unusualPump)
	if err := n.setDMAControl(datasheet.DMAControlHostTx|datasheet.DMAControlHostRx, 0); err != nil {
		return errors.Join(err, n.stopPump())
	}
	n.goroutines.Go(func() { next.run() })
	return nil
}

// prepareProgress gives the device memory for its progress counters, once.
func (n *NIC) prepareProgress() error {
	if n.dma.area != nil {
		return nil
	}
	area, err := n.newDMA(n.background, datasheet.ProgressAreaSize, vfio.DMARead|vfio.DMAWrite, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return err
	}
	if err := n.setAddress(datasheet.RegProgressLow, area.iova, "progress counters"); err != nil {
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
	p.stop()
	return n.setDMAControl(0, datasheet.DMAControlHostTx|datasheet.DMAControlHostRx)
}

// fallBack has the device decide, because it has told the pump nonsense.
func (n *NIC) fallBack(p *pump, cause error) {
	n.dma.mu.Lock()
	defer n.dma.mu.Unlock()
	if n.pump.Load() != p {
		return
	}
	err := n.stopPump()
	n.dma.cause = cause
	n.log.Warn("the NIC decides by itself again: its progress counters make no sense", "err", cause, "register", err)
}
