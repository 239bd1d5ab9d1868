package emulator

import (
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// dmaBehaviours says what the registers of the DMA block do.
func dmaBehaviours(all map[registerKey]register) {
	put := func(offset uint32, r register) { all[registerKey{datasheet.BlockDMA, offset}] = r }
	// engineKeeps is a register whose value the engine keeps.
	engineKeeps := func(offset uint32, read func(s *engine.DMAState) uint32, write func(d *Device, v uint32)) {
		put(offset, register{write: write, read: func(d *Device) uint32 {
			s := d.engine.DMAState()
			return read(&s)
		}})
	}
	engineKeeps(datasheet.RegDMAControl, dmaControl, (*Device).setDMAControl)
	engineKeeps(datasheet.RegPulseTimeouts, func(s *engine.DMAState) uint32 { return s.Timeouts }, nil)
	engineKeeps(datasheet.RegPulsesRefused, func(s *engine.DMAState) uint32 { return s.Refused }, nil)
	engineKeeps(datasheet.RegLogProducer, func(s *engine.DMAState) uint32 { return s.LogProducer }, nil)
	engineKeeps(datasheet.RegLogLost, func(s *engine.DMAState) uint32 { return s.LogLost }, nil)
	engineKeeps(datasheet.RegLogConsumer, func(s *engine.DMAState) uint32 { return s.LogConsumer }, func(d *Device, v uint32) {
		if !d.engine.TakeLog(v) {
			d.badAccess()
		}
	})
	for e := range datasheet.DMAEngineCount {
		for _, offset := range []uint32{datasheet.EngineRegState, datasheet.EngineRegFrame, datasheet.EngineRegLength, datasheet.EngineRegProgress} {
			engineKeeps(datasheet.DMAEngineBase+datasheet.DMAEngineSize*uint32(e)+offset,
				func(s *engine.DMAState) uint32 { return engineRegister(s, e, offset) }, nil)
		}
	}
	put(datasheet.RegPulseDeadline, register{
		read:  func(d *Device) uint32 { return d.dma.deadline },
		write: (*Device).setPulseDeadline,
	})
	for _, r := range []struct {
		dir                     engine.Direction
		policy, minPulse, pulse uint32
	}{
		{engine.Transmit, datasheet.RegPolicyTx, datasheet.RegMinPulseTx, datasheet.RegPulseTx},
		{engine.Receive, datasheet.RegPolicyRx, datasheet.RegMinPulseRx, datasheet.RegPulseRx},
	} {
		put(r.policy, register{
			read:  func(d *Device) uint32 { return uint32(d.dma.policy[r.dir]) },
			write: func(d *Device, v uint32) { d.setPolicy(r.dir, v) },
		})
		put(r.minPulse, register{
			read:  func(d *Device) uint32 { return d.dma.minPulse[r.dir] },
			write: func(d *Device, v uint32) { d.setMinPulse(r.dir, v) },
		})
		put(r.pulse, register{write: func(d *Device, v uint32) { d.pulse(r.dir, v) }})
	}
	dmaAddresses(put)
}

// dmaAddresses are the registers for the addresses of the progress area and the log,
// which can be written while nothing uses them.
func dmaAddresses(put func(offset uint32, r register)) {
	pulsing := func(d *Device) bool {
		s := d.engine.DMAState()
		return s.Pulses[engine.Transmit] || s.Pulses[engine.Receive]
	}
	logging := func(d *Device) bool { return d.engine.DMAState().Log }
	base := func(low, high uint32, align uint64, locked func(*Device) bool, at func(r *dmaRegisters) *uint64) {
		halves := addressRegisters(low, high, func(d *Device) *uint64 { return at(&d.dma) })
		for offset, r := range halves {
			write := r.write
			r.locked = locked
			r.write = func(d *Device, v uint32) {
				if offset == low && uint64(v)%align != 0 {
					d.badAccess()
					return
				}
				write(d, v)
			}
			put(offset, r)
		}
	}
	base(datasheet.RegProgressLow, datasheet.RegProgressHigh, datasheet.ProgressSize, pulsing,
		func(r *dmaRegisters) *uint64 { return &r.progress })
	base(datasheet.RegLogBaseLow, datasheet.RegLogBaseHigh, datasheet.DMARecordSize, logging,
		func(r *dmaRegisters) *uint64 { return &r.logBase })
	put(datasheet.RegLogLog2, register{
		locked: logging,
		read:   func(d *Device) uint32 { return d.dma.logLog2 },
		write: func(d *Device, v uint32) {
			if v < datasheet.MinLogLog2 || v > datasheet.MaxLogLog2 {
				d.badAccess()
				return
			}
			d.dma.logLog2 = v
		},
	})
}
