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

type builtInRegister struct {
	reading
	what string
}

func (b *builtInPolicies) registers() [4]builtInRegister {
	const policy, size = "policy number %d", "a minimum pulse of %d bytes"
	return [4]builtInRegister{
		{reading{datasheet.RegPolicyTx, &b.policyTx}, policy}, {reading{datasheet.RegMinPulseTx, &b.minPulseTx}, size},
		{reading{datasheet.RegPolicyRx, &b.policyRx}, policy}, {reading{datasheet.RegMinPulseRx, &b.minPulseRx}, size},
	}
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
