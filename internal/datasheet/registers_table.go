package datasheet

import "strings"

// RegisterAccess says what a register does when it is read and written
// (SPEC.md 2.1).
type RegisterAccess string

const (
	// RegisterRO is read only: writes are ignored and counted.
	RegisterRO RegisterAccess = "RO"
	// RegisterRW reads what was written last.
	RegisterRW RegisterAccess = "RW"
	// RegisterRWD is RW while what uses it is switched off and RO while it is
	// on: the admin queue, the host's pulses, the log.
	RegisterRWD RegisterAccess = "RWD"
	// RegisterWO acts on what is written to it and reads as zero.
	RegisterWO RegisterAccess = "WO"
)

// Register describes one 32-bit register.
type Register struct {
	// Block is the type of the block that the register belongs to.
	Block uint32
	// Offset in bytes from the start of the block.
	Offset uint32
	// Name as in SPEC.md, such as "MAX_CQS".
	Name   string
	Access RegisterAccess
	// Reset is the value after power-on, where Fixed says that it is the same
	// on every device of this version. The others state properties of the
	// device (limits, addresses) or change by themselves (heartbeat, clock).
	Reset uint32
	Fixed bool
}

// Registers lists every register but the headers of the blocks, the DMA engines
// and the counters themselves last.
func Registers() []Register {
	all := make([]Register, 0, len(registers)+4*int(DMAEngineCount)+2*int(CounterCount))
	all = append(all, registers[:]...)
	for e := range DMAEngineCount {
		name, at := strings.ToUpper(e.String()), DMAEngineBase+DMAEngineSize*uint32(e)
		all = append(all,
			Register{BlockDMA, at + EngineRegState, name + "_STATE", RegisterRO, uint32(DMAIdle), true},
			Register{BlockDMA, at + EngineRegFrame, name + "_FRAME", RegisterRO, 0, true},
			Register{BlockDMA, at + EngineRegLength, name + "_LENGTH", RegisterRO, 0, true},
			Register{BlockDMA, at + EngineRegProgress, name + "_PROGRESS", RegisterRO, 0, true})
	}
	for c := range CounterCount {
		name, at := strings.ToUpper(c.String()), RegCounterBase+8*uint32(c)
		all = append(all,
			Register{BlockCounters, at, name + "_LOW", RegisterRO, 0, true},
			Register{BlockCounters, at + 4, name + "_HIGH", RegisterRO, 0, true})
	}
	return all
}

// registers is every register but those of the DMA engines and the counters,
// which follow from DMAEngine and Counter.
var registers = [...]Register{
	{BlockIdentity, RegMagic, "MAGIC", RegisterRO, Magic, true},
	{BlockIdentity, RegDeviceVersion, "DEVICE_VERSION", RegisterRO, 0, false},
	{BlockIdentity, RegFeaturesLow, "FEATURES_LOW", RegisterRO, 0, false},
	{BlockIdentity, RegFeaturesHigh, "FEATURES_HIGH", RegisterRO, 0, false},
	{BlockIdentity, RegMaxEndpoints, "MAX_ENDPOINTS", RegisterRO, 0, false},
	{BlockIdentity, RegMaxCQs, "MAX_CQS", RegisterRO, 0, false},
	{BlockIdentity, RegMaxRegions, "MAX_REGIONS", RegisterRO, 0, false},
	{BlockIdentity, RegMaxPtags, "MAX_PTAGS", RegisterRO, 0, false},
	{BlockIdentity, RegMaxQueueLog2, "MAX_QUEUE_LOG2", RegisterRO, 0, false},
	{BlockIdentity, RegMaxCQLog2, "MAX_CQ_LOG2", RegisterRO, 0, false},
	{BlockIdentity, RegMaxSegments, "MAX_SEGMENTS", RegisterRO, 0, false},
	{BlockIdentity, RegMaxTransfer, "MAX_TRANSFER", RegisterRO, 0, false},
	{BlockIdentity, RegMTU, "MTU", RegisterRO, 0, false},
	{BlockIdentity, RegSRAMSize, "SRAM_SIZE", RegisterRO, 0, false},
	{BlockIdentity, RegMACLow, "MAC_LOW", RegisterRO, 0, false},
	{BlockIdentity, RegMACHigh, "MAC_HIGH", RegisterRO, 0, false},
	{BlockIdentity, RegPageSizeLog2, "PAGE_SIZE_LOG2", RegisterRO, 12, true},
	{BlockIdentity, RegSRAMBase, "SRAM_BASE", RegisterRO, 0, false},
	{BlockIdentity, RegSRAMFree, "SRAM_FREE", RegisterRO, 0, false},

	{BlockHealth, RegControl, "CONTROL", RegisterWO, 0, true},
	{BlockHealth, RegStatus, "STATUS", RegisterRO, 0, false},
	{BlockHealth, RegFault, "FAULT", RegisterRO, FaultNone, true},
	{BlockHealth, RegFaultDetail, "FAULT_DETAIL", RegisterRO, 0, true},
	{BlockHealth, RegResetCount, "RESET_COUNT", RegisterRO, 0, true},
	{BlockHealth, RegHeartbeat, "HEARTBEAT", RegisterRO, 0, false},

	{BlockAdmin, RegSQBaseLow, "SQ_BASE_LOW", RegisterRWD, 0, true},
	{BlockAdmin, RegSQBaseHigh, "SQ_BASE_HIGH", RegisterRWD, 0, true},
	{BlockAdmin, RegACQBaseLow, "ACQ_BASE_LOW", RegisterRWD, 0, true},
	{BlockAdmin, RegACQBaseHigh, "ACQ_BASE_HIGH", RegisterRWD, 0, true},
	{BlockAdmin, RegSQLog2, "SQ_LOG2", RegisterRWD, 0, true},
	{BlockAdmin, RegACQLog2, "ACQ_LOG2", RegisterRWD, 0, true},
	{BlockAdmin, RegAdminVector, "ADMIN_VECTOR", RegisterRWD, 0, true},
	{BlockAdmin, RegAdminControl, "ADMIN_CONTROL", RegisterRW, 0, true},
	{BlockAdmin, RegAdminStatus, "ADMIN_STATUS", RegisterRO, 0, true},
	{BlockAdmin, RegSQProducer, "SQ_PRODUCER", RegisterRW, 0, true},
	{BlockAdmin, RegSQConsumer, "SQ_CONSUMER", RegisterRO, 0, true},
	{BlockAdmin, RegACQConsumer, "ACQ_CONSUMER", RegisterRW, 0, true},
	{BlockAdmin, RegEventsLost, "EVENTS_LOST", RegisterRO, 0, true},

	{BlockClock, RegClockLow, "CLOCK_LOW", RegisterRO, 0, false},
	{BlockClock, RegClockHigh, "CLOCK_HIGH", RegisterRO, 0, false},
	{BlockClock, RegClockResolution, "CLOCK_RESOLUTION", RegisterRO, ClockResolution, true},

	{BlockChannels, RegChannels, "CHANNELS", RegisterRO, 0, true},
	{BlockChannels, RegTransmitHigh, "TRANSMIT_HIGH", RegisterRO, 0, true},
	{BlockChannels, RegTransmitLow, "TRANSMIT_LOW", RegisterRO, 0, true},
	{BlockChannels, RegTransmitHighHighest, "TRANSMIT_HIGH_HIGHEST", RegisterRO, 0, true},
	{BlockChannels, RegTransmitLowHighest, "TRANSMIT_LOW_HIGHEST", RegisterRO, 0, true},
	{BlockChannels, RegReceiveLevel, "RECEIVE_LEVEL", RegisterRO, 0, true},
	{BlockChannels, RegReceiveHighest, "RECEIVE_HIGHEST", RegisterRO, 0, true},
	{BlockChannels, RegReceiveSize, "RECEIVE_SIZE", RegisterRO, 0, false},
	{BlockChannels, RegStoppedBy, "STOPPED_BY", RegisterRO, 0, true},
	{BlockChannels, RegStopped, "STOPPED", RegisterRO, 0, true},

	{BlockInterrupt, RegVectors, "VECTORS", RegisterRO, 0, false},
	{BlockInterrupt, RegTableOffset, "TABLE_OFFSET", RegisterRO, MSIXTableOffset, true},
	{BlockInterrupt, RegPBAOffset, "PBA_OFFSET", RegisterRO, MSIXPBAOffset, true},

	{BlockDMA, RegDMAEngines, "DMA_ENGINES", RegisterRO, uint32(DMAEngineCount), true},
	{BlockDMA, RegDMAControl, "DMA_CONTROL", RegisterRW, 0, true},
	{BlockDMA, RegPolicyTx, "POLICY_TX", RegisterRW, 0, false},
	{BlockDMA, RegPolicyRx, "POLICY_RX", RegisterRW, 0, false},
	{BlockDMA, RegMinPulseTx, "MINPULSE_TX", RegisterRW, 0, false},
	{BlockDMA, RegMinPulseRx, "MINPULSE_RX", RegisterRW, 0, false},
	{BlockDMA, RegProgressLow, "PROGRESS_LOW", RegisterRWD, 0, true},
	{BlockDMA, RegProgressHigh, "PROGRESS_HIGH", RegisterRWD, 0, true},
	{BlockDMA, RegPulseTx, "PULSE_TX", RegisterWO, 0, true},
	{BlockDMA, RegPulseRx, "PULSE_RX", RegisterWO, 0, true},
	{BlockDMA, RegPulseDeadline, "PULSE_DEADLINE", RegisterRW, PulseDeadlineReset, true},
	{BlockDMA, RegPulseTimeouts, "PULSE_TIMEOUTS", RegisterRO, 0, true},
	{BlockDMA, RegPulsesRefused, "PULSES_REFUSED", RegisterRO, 0, true},
	{BlockDMA, RegLogBaseLow, "LOG_BASE_LOW", RegisterRWD, 0, true},
	{BlockDMA, RegLogBaseHigh, "LOG_BASE_HIGH", RegisterRWD, 0, true},
	{BlockDMA, RegLogLog2, "LOG_LOG2", RegisterRWD, 0, true},
	{BlockDMA, RegLogConsumer, "LOG_CONSUMER", RegisterRW, 0, true},
	{BlockDMA, RegLogProducer, "LOG_PRODUCER", RegisterRO, 0, true},
	{BlockDMA, RegLogLost, "LOG_LOST", RegisterRO, 0, true},

	{BlockCounters, RegCounterCount, "COUNTER_COUNT", RegisterRO, uint32(CounterCount), true},
}
