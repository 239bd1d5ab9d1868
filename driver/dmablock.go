package driver

import (
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// dmaBlock is the driver's state of the device's DMA block (SPEC.md 2.9).
// mu guards it and the block's registers but for the pulses.
type dmaBlock struct {
	mu sync.Mutex
	// own is the device's configuration, known once it was asked.
	own   *builtInPolicies
	area  *dmaBuffer // progress counters, nil until the host first decides
	host  Policy     // that the pump runs
	cause error      // why the pump gave up
	log   dmaLog
}

// builtInPolicies are the registers of the built-in policies.
type builtInPolicies struct{ policyTx, policyRx, minPulseTx, minPulseRx uint32 }

// errNoDMABlock: the device is older than what is asked of it.
var errNoDMABlock = fmt.Errorf("%w: it has no DMA engine block", descriptors.ErrNotSupported)

const hintOlderDevice = "the device is older than this driver; it goes on with the policy that it has"

// beginDMA starts an operation on the DMA block; endDMA ends it.
func (n *NIC) beginDMA(op string) error {
	if err := n.begin(n.background, op); err != nil {
		return err
	}
	if !n.regs.has(datasheet.BlockDMA) {
		n.end()
		return n.refuse(op, errNoDMABlock, hintOlderDevice)
	}
	n.dma.mu.Lock()
	return nil
}

func (n *NIC) endDMA() {
	n.dma.mu.Unlock()
	n.end()
}

func (n *NIC) readBuiltIn() (b builtInPolicies, err error) {
	for _, r := range b.registers() {
		if *r.v, err = n.regs.read(datasheet.BlockDMA, r.reg); err != nil {
			return b, err
		}
	}
	return b, nil
}

// builtInRegister is a register and its value.
type builtInRegister struct {
	reg  uint64
	v    *uint32
	what string
}

func (b *builtInPolicies) registers() [4]builtInRegister {
	const policy, size = "policy number %d", "a minimum pulse of %d bytes"
	return [4]builtInRegister{
		{datasheet.RegPolicyTx, &b.policyTx, policy}, {datasheet.RegMinPulseTx, &b.minPulseTx, size},
		{datasheet.RegPolicyRx, &b.policyRx, policy}, {datasheet.RegMinPulseRx, &b.minPulseRx, size},
	}
}

// setDMA writes a register and looks whether the device took it: it ignores
// what it does not know. what is a format for the value.
func (n *NIC) setDMA(reg uint64, v uint32, what string) error {
	if err := n.regs.write(datasheet.BlockDMA, reg, v); err != nil {
		return err
	}
	got, err := n.regs.read(datasheet.BlockDMA, reg)
	if err != nil {
		return err
	}
	if got != v {
		if _, err := n.regs.status(); err != nil {
			return n.fail(err)
		}
		return fmt.Errorf("%w: it does not take "+what, descriptors.ErrNotSupported, v)
	}
	return nil
}

// setDMAControl sets and clears bits of the control register.
func (n *NIC) setDMAControl(set, clear uint32) error {
	v, err := n.regs.read(datasheet.BlockDMA, datasheet.RegDMAControl)
	if err != nil {
		return err
	}
	return n.setDMA(datasheet.RegDMAControl, v&^clear|set, "DMA control %#x")
}
