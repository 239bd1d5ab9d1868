package emulator

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// registerKey names a register as the data sheet does.
type registerKey struct{ block, offset uint32 }

// registerBehaviours says what registers do that do not just read their reset
// value.
func registerBehaviours() map[registerKey]register {
	all := map[registerKey]register{}
	identityRegisters(all)
	healthRegisters(all)
	adminBehaviours(all)
	dmaBehaviours(all)
	processorBehaviours(all)
	timeRegisters(all)
	channelRegisters(all)
	return all
}

func identityRegisters(all map[registerKey]register) {
	put := func(offset uint32, read func(d *Device) uint32) {
		all[registerKey{datasheet.BlockIdentity, offset}] = register{read: read}
	}
	limit := func(offset uint32, read func(l engine.Limits) uint32) {
		put(offset, func(d *Device) uint32 { return read(d.engine.Limits) })
	}
	put(datasheet.RegDeviceVersion, func(*Device) uint32 { return deviceVersion })
	put(datasheet.RegFeaturesLow, func(d *Device) uint32 { return uint32(d.engine.Features()) })
	put(datasheet.RegFeaturesHigh, func(d *Device) uint32 { return uint32(d.engine.Features() >> 32) })
	limit(datasheet.RegMaxEndpoints, func(l engine.Limits) uint32 { return l.Endpoints })
	limit(datasheet.RegMaxCQs, func(l engine.Limits) uint32 { return l.CQs })
	limit(datasheet.RegMaxRegions, func(l engine.Limits) uint32 { return l.Regions })
	limit(datasheet.RegMaxPtags, func(l engine.Limits) uint32 { return l.Ptags })
	limit(datasheet.RegMaxQueueLog2, func(l engine.Limits) uint32 { return uint32(l.QueueLog2) })
	limit(datasheet.RegMaxCQLog2, func(l engine.Limits) uint32 { return uint32(l.CQLog2) })
	limit(datasheet.RegMaxSegments, func(l engine.Limits) uint32 { return uint32(l.Segments) })
	limit(datasheet.RegMaxTransfer, func(l engine.Limits) uint32 { return l.Transfer })
	put(datasheet.RegMTU, func(d *Device) uint32 { return uint32(d.wire.MTU()) })
	put(datasheet.RegSRAMSize, func(d *Device) uint32 { return uint32(d.bars[datasheet.BARSRAM].size) })
	put(datasheet.RegSRAMBase, func(d *Device) uint32 { return d.processor.Used() })
	put(datasheet.RegSRAMFree, func(d *Device) uint32 { return d.engine.FreeSRAM() })
	mac := func(d *Device) uint64 {
		m := d.engine.MAC
		return binary.LittleEndian.Uint64(append(m[:], 0, 0))
	}
	put(datasheet.RegMACLow, func(d *Device) uint32 { return uint32(mac(d)) })
	put(datasheet.RegMACHigh, func(d *Device) uint32 { return uint32(mac(d) >> 32) })
	all[registerKey{datasheet.BlockInterrupt, datasheet.RegVectors}] =
		register{read: func(d *Device) uint32 { return uint32(len(d.msix.table)) }}
}

func healthRegisters(all map[registerKey]register) {
	put := func(offset uint32, r register) { all[registerKey{datasheet.BlockHealth, offset}] = r }
	put(datasheet.RegControl, register{write: func(d *Device, v uint32) {
		if v&datasheet.ControlReset != 0 {
			d.reset()
		}
	}})
	put(datasheet.RegStatus, register{read: (*Device).deviceStatus})
	put(datasheet.RegFault, register{read: func(d *Device) uint32 { return d.admin.fault.Load() }})
	put(datasheet.RegFaultDetail, register{read: func(d *Device) uint32 { return d.admin.faultDetail.Load() }})
	put(datasheet.RegResetCount, register{read: func(d *Device) uint32 { return d.resets }})
	put(datasheet.RegHeartbeat, register{read: (*Device).heartbeat})
}

func adminBehaviours(all map[registerKey]register) {
	put := func(offset uint32, r register) { all[registerKey{datasheet.BlockAdmin, offset}] = r }
	running := func(d *Device) bool { return !d.admin.writable() }
	// kept is a register whose value is kept in r; bits outside mask read zero.
	kept := func(offset, mask uint32, at func(r *adminRegisters) *uint32) {
		put(offset, register{
			locked: running,
			read:   func(d *Device) uint32 { return *at(&d.admin.regs) },
			write:  func(d *Device, v uint32) { *at(&d.admin.regs) = v & mask },
		})
	}
	base := func(low, high uint32, at func(r *adminRegisters) *uint64) {
		for offset, r := range addressRegisters(low, high, func(d *Device) *uint64 { return at(&d.admin.regs) }) {
			r.locked = running
			put(offset, r)
		}
	}
	base(datasheet.RegSQBaseLow, datasheet.RegSQBaseHigh, func(r *adminRegisters) *uint64 { return &r.sqBase })
	base(datasheet.RegACQBaseLow, datasheet.RegACQBaseHigh, func(r *adminRegisters) *uint64 { return &r.acqBase })
	kept(datasheet.RegSQLog2, allOnes, func(r *adminRegisters) *uint32 { return &r.sqLog2 })
	kept(datasheet.RegACQLog2, allOnes, func(r *adminRegisters) *uint32 { return &r.acqLog2 })
	kept(datasheet.RegAdminVector, 0xffff, func(r *adminRegisters) *uint32 { return &r.vector })
	put(datasheet.RegAdminControl, register{
		read:  func(d *Device) uint32 { return d.admin.regs.control },
		write: func(d *Device, v uint32) { d.admin.setControl(v) },
	})
	put(datasheet.RegAdminStatus, register{read: func(d *Device) uint32 { return d.admin.status.Load() }})
	put(datasheet.RegSQProducer, register{
		read:  func(d *Device) uint32 { return d.admin.regs.producer },
		write: func(d *Device, v uint32) { d.admin.ring(v) },
	})
	put(datasheet.RegSQConsumer, register{read: func(d *Device) uint32 { return d.admin.fetched.Load() }})
	put(datasheet.RegACQConsumer, register{
		read:  func(d *Device) uint32 { return d.admin.regs.taken },
		write: func(d *Device, v uint32) { d.admin.acknowledge(v) },
	})
	put(datasheet.RegEventsLost, register{read: func(d *Device) uint32 { return d.admin.lost.Load() }})
}

// addressRegisters is a pair of registers, by offset, that are kept as one
// address.
func addressRegisters(low, high uint32, at func(d *Device) *uint64) map[uint32]register {
	return map[uint32]register{
		low: {
			read:  func(d *Device) uint32 { return uint32(*at(d)) },
			write: func(d *Device, v uint32) { b := at(d); *b = *b>>32<<32 | uint64(v) },
		},
		high: {
			read:  func(d *Device) uint32 { return uint32(*at(d) >> 32) },
			write: func(d *Device, v uint32) { b := at(d); *b = *b&0xffffffff | uint64(v)<<32 },
		},
	}
}

// channelRegisters are the levels of the FIFOs of channels.
func channelRegisters(all map[registerKey]register) {
	put := func(offset uint32, of func(l engine.CellLevels) int) {
		all[registerKey{datasheet.BlockChannels, offset}] = register{read: func(d *Device) uint32 { return uint32(of(d.engine.CellLevels())) }}
	}
	put(datasheet.RegChannels, func(l engine.CellLevels) int { return l.Channels })
	put(datasheet.RegTransmitHigh, func(l engine.CellLevels) int { return l.Transmit[datasheet.PriorityHigh] })
	put(datasheet.RegTransmitLow, func(l engine.CellLevels) int { return l.Transmit[datasheet.PriorityLow] })
	put(datasheet.RegTransmitHighHighest, func(l engine.CellLevels) int { return l.TransmitHighest[datasheet.PriorityHigh] })
	put(datasheet.RegTransmitLowHighest, func(l engine.CellLevels) int { return l.TransmitHighest[datasheet.PriorityLow] })
	put(datasheet.RegReceiveLevel, func(l engine.CellLevels) int { return l.Receive })
	put(datasheet.RegReceiveHighest, func(l engine.CellLevels) int { return l.ReceiveHighest })
	put(datasheet.RegReceiveSize, func(l engine.CellLevels) int { return l.ReceiveSize })
	put(datasheet.RegStoppedBy, func(l engine.CellLevels) int { return l.StoppedBy })
	put(datasheet.RegStopped, func(l engine.CellLevels) int { return l.Stopped })
}

// timeRegisters are the clock and the counters: pairs whose low half latches
// the high half.
func timeRegisters(all map[registerKey]register) {
	pair := func(block, low uint32, value func(d *Device) uint64, latch func(l *latches) *uint32) {
		all[registerKey{block, low}] = register{read: func(d *Device) uint32 {
			v := value(d)
			*latch(&d.latch) = uint32(v >> 32)
			return uint32(v)
		}}
		all[registerKey{block, low + 4}] = register{read: func(d *Device) uint32 { return *latch(&d.latch) }}
	}
	pair(datasheet.BlockClock, datasheet.RegClockLow, (*Device).ticks, func(l *latches) *uint32 { return &l.clock })
	for c := range datasheet.CounterCount {
		pair(datasheet.BlockCounters, datasheet.RegCounterBase+8*uint32(c),
			func(d *Device) uint64 { return d.engine.Counter(c) },
			func(l *latches) *uint32 { return &l.counters[c] })
	}
}
