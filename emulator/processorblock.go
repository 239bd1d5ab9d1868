package emulator

import (
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// newProcessor makes the NIC processor, after engine and SRAM have been made.
func (d *Device) newProcessor() *processor.Unit {
	return processor.New(processor.Config{
		Engine: d.engine, SRAM: d.sram.bytes, Clock: d.clock,
		Device: uint32(datasheet.PCIVendorID)<<16 | uint32(datasheet.PCIDeviceID),
	})
}

// processorBehaviours says what the registers of the processor block do.
func processorBehaviours(all map[registerKey]register) {
	for _, r := range datasheet.ProcessorRegisters() {
		b := register{read: func(d *Device) uint32 { return d.processor.Read(r.Offset) }}
		if r.Access != datasheet.RegisterRO {
			b.write = func(d *Device, v uint32) {
				if !d.processor.Write(r.Offset, v) {
					d.badAccess()
				}
			}
		}
		all[registerKey{r.Block, r.Offset}] = b
	}
}
