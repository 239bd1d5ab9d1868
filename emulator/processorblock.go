package emulator

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
)

// newProcessor makes the NIC processor, after engine and SRAM have been made.
func (d *Device) newProcessor() *processor.Unit {
	return processor.New(processor.Config{
		Engine: d.engine, SRAM: d.sram.bytes, Clock: d.clock,
		Device: uint32(descriptors.PCIVendorID)<<16 | uint32(descriptors.PCIDeviceID),
	})
}

// processorBehaviours says what the registers of the processor block do.
func processorBehaviours(all map[registerKey]register) {
	for _, r := range descriptors.ProcessorRegisters() {
		b := register{read: func(d *Device) uint32 { return d.processor.Read(r.Offset) }}
		if r.Access != descriptors.RegisterRO {
			b.write = func(d *Device, v uint32) {
				if !d.processor.Write(r.Offset, v) {
					d.badAccess()
				}
			}
		}
		all[registerKey{r.Block, r.Offset}] = b
	}
}
