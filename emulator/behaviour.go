package emulator

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
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
		all[registerKey{descriptors.BlockIdentity, offset}] = register{read: read}
	}
	limit := func(offset uint32, read func(l engine.Limits) uint32) {
		put(offset, func(d *Device) uint32 { return read(d.engine.Limits()) })
	}
	put(descriptors.RegDeviceVersion, func(*Device) uint32 { return deviceVersion })
	put(descriptors.RegFeaturesLow, func(d *Device) uint32 { return uint32(d.engine.Features()) })
	put(descriptors.RegFeaturesHigh, func(d *Device) uint32 { return uint32(d.engine.Features() >> 32) })
	limit(descriptors.RegMaxEndpoints, func(l engine.Limits) uint32 { return l.Endpoints })
	limit(descriptors.RegMaxCQs, func(l engine.Limits) uint32 { return l.CQs })
	limit(descriptors.RegMaxRegions, func(l engine.Limits) uint32 { return l.Regions })
	limit(descriptors.RegMaxPtags, func(l engine.Limits) uint32 { return l.Ptags })
	limit(descriptors.RegMaxQueueLog2, func(l engine.Limits) uint32 { return uint32(l.QueueLog2) })
	limit(descriptors.RegMaxCQLog2, func(l engine.Limits) uint32 { return uint32(l.CQLog2) })
	limit(descriptors.RegMaxSegments, func(l engine.Limits) uint32 { return uint32(l.Segments) })
	limit(descriptors.RegMaxTransfer, func(l engine.Limits) uint32 { return l.Transfer })
	put(descriptors.RegMTU, func(d *Device) uint32 { return uint32(d.wire.MTU()) })
	put(descriptors.RegSRAMSize, func(d *Device) uint32 { return uint32(d.bars[descriptors.BARSRAM].size) })
	put(descriptors.RegSRAMBase, func(d *Device) uint32 { return d.processor.Used() })
	put(descriptors.RegSRAMFree, func(d *Device) uint32 { return d.engine.FreeSRAM() })
	mac := func(d *Device) uint64 {
		m := d.engine.MAC()
		return binary.LittleEndian.Uint64(append(m[:], 0, 0))
	}
	put(descriptors.RegMACLow, func(d *Device) uint32 { return uint32(mac(d)) })
	put(descriptors.RegMACHigh, func(d *Device) uint32 { return uint32(mac(d) >> 32) })
	all[registerKey{descriptors.BlockInterrupt, descriptors.RegVectors}] =
		register{read: func(d *Device) uint32 { return uint32(len(d.msix.table)) }}
}

func healthRegisters(all map[registerKey]register) {
	put := func(offset uint32, r register) { all[registerKey{descriptors.BlockHealth, offset}] = r }
	put(descriptors.RegControl, register{write: func(d *Device, v uint32) {
		if v&descriptors.ControlReset != 0 {
			d.reset()
		}
	}})
	put(descriptors.RegStatus, register{read: (*Device).deviceStatus})
	put(descriptors.RegFault, register{read: func(d *Device) uint32 { return d.admin.fault.Load() }})
	put(descriptors.RegFaultDetail, register{read: func(d *Device) uint32 { return d.admin.faultDetail.Load() }})
	put(descriptors.RegResetCount, register{read: func(d *Device) uint32 { return d.resets }})
	put(descriptors.RegHeartbeat, register{read: (*Device).heartbeat})
}

func adminBehaviours(all map[registerKey]register) {
	put := func(offset uint32, r register) { all[registerKey{descriptors.BlockAdmin, offset}] = r }
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
	base(descriptors.RegSQBaseLow, descriptors.RegSQBaseHigh, func(r *adminRegisters) *uint64 { return &r.sqBase })
	base(descriptors.RegACQBaseLow, descriptors.RegACQBaseHigh, func(r *adminRegisters) *uint64 { return &r.acqBase })
	kept(descriptors.RegSQLog2, allOnes, func(r *adminRegisters) *uint32 { return &r.sqLog2 })
	kept(descriptors.RegACQLog2, allOnes, func(r *adminRegisters) *uint32 { return &r.acqLog2 })
	kept(descriptors.RegAdminVector, 0xffff, func(r *adminRegisters) *uint32 { return &r.vector })
	put(descriptors.RegAdminControl, register{
		read:  func(d *Device) uint32 { return d.admin.regs.control },
		write: func(d *Device, v uint32) { d.admin.setControl(v) },
	})
	put(descriptors.RegAdminStatus, register{read: func(d *Device) uint32 { return d.admin.status.Load() }})
	put(descriptors.RegSQProducer, register{
		read:  func(d *Device) uint32 { return d.admin.regs.producer },
		write: func(d *Device, v uint32) { d.admin.ring(v) },
	})
	put(descriptors.RegSQConsumer, register{read: func(d *Device) uint32 { return d.admin.fetched.Load() }})
	put(descriptors.RegACQConsumer, register{
		read:  func(d *Device) uint32 { return d.admin.regs.taken },
		write: func(d *Device, v uint32) { d.admin.acknowledge(v) },
	})
	put(descriptors.RegEventsLost, register{read: func(d *Device) uint32 { return d.admin.lost.Load() }})
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
		all[registerKey{descriptors.BlockChannels, offset}] = register{read: func(d *Device) uint32 { return uint32(of(d.engine.CellLevels())) }}
	}
	put(descriptors.RegChannels, func(l engine.CellLevels) int { return l.Channels })
	put(descriptors.RegTransmitHigh, func(l engine.CellLevels) int { return l.Transmit[descriptors.PriorityHigh] })
	put(descriptors.RegTransmitLow, func(l engine.CellLevels) int { return l.Transmit[descriptors.PriorityLow] })
	put(descriptors.RegTransmitHighHighest, func(l engine.CellLevels) int { return l.TransmitHighest[descriptors.PriorityHigh] })
	put(descriptors.RegTransmitLowHighest, func(l engine.CellLevels) int { return l.TransmitHighest[descriptors.PriorityLow] })
	put(descriptors.RegReceiveLevel, func(l engine.CellLevels) int { return l.Receive })
	put(descriptors.RegReceiveHighest, func(l engine.CellLevels) int { return l.ReceiveHighest })
	put(descriptors.RegReceiveSize, func(l engine.CellLevels) int { return l.ReceiveSize })
	put(descriptors.RegStoppedBy, func(l engine.CellLevels) int { return l.StoppedBy })
	put(descriptors.RegStopped, func(l engine.CellLevels) int { return l.Stopped })
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
	pair(descriptors.BlockClock, descriptors.RegClockLow, (*Device).ticks, func(l *latches) *uint32 { return &l.clock })
	for c := range descriptors.CounterCount {
		pair(descriptors.BlockCounters, descriptors.RegCounterBase+8*uint32(c),
			func(d *Device) uint64 { return d.engine.Counter(c) },
			func(l *latches) *uint32 { return &l.counters[c] })
	}
}
