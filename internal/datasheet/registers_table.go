package datasheet

import (
	"slices"
	"strings"
)

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

// run is registers that follow each other and are alike but for their names. Its reset value may be a device's own.
type run struct {
	block, at uint32
	access    RegisterAccess
	reset     int64
	names     string
}

const ofDevice = -1

// list lists the registers of runs, in order.
func list(runs []run) (all []Register) {
	for _, r := range runs {
		for i, name := range strings.Fields(r.names) {
			all = append(all, Register{r.block, r.at + 4*uint32(i), name, r.access, uint32(max(r.reset, 0)), r.reset != ofDevice})
		}
	}
	return all
}

// Registers lists every register but the headers of the blocks, the DMA engines
// and the counters themselves last.
func Registers() []Register {
	runs := slices.Clone(registers)
	for e := range DMAEngineCount {
		names := strings.ReplaceAll("_STATE _FRAME _LENGTH _PROGRESS", "_", strings.ToUpper(e.String())+"_")
		runs = append(runs, run{BlockDMA, DMAEngineBase + DMAEngineSize*uint32(e), RegisterRO, 0, names})
	}
	for c := range CounterCount {
		name := strings.ToUpper(c.String())
		runs = append(runs, run{BlockCounters, RegCounterBase + 8*uint32(c), RegisterRO, 0, name + "_LOW " + name + "_HIGH"})
	}
	return list(runs)
}

// registers is every register but those of the DMA engines and the counters,
// which follow from DMAEngine and Counter.
var registers = []run{
	{BlockIdentity, RegMagic, RegisterRO, int64(Magic), "MAGIC"},
	{BlockIdentity, RegDeviceVersion, RegisterRO, ofDevice, "DEVICE_VERSION FEATURES_LOW FEATURES_HIGH MAX_ENDPOINTS MAX_CQS MAX_REGIONS " +
		"MAX_PTAGS MAX_QUEUE_LOG2 MAX_CQ_LOG2 MAX_SEGMENTS MAX_TRANSFER MTU SRAM_SIZE MAC_LOW MAC_HIGH"},
	{BlockIdentity, RegPageSizeLog2, RegisterRO, 12, "PAGE_SIZE_LOG2"},
	{BlockIdentity, RegSRAMBase, RegisterRO, ofDevice, "SRAM_BASE SRAM_FREE"},

	{BlockHealth, RegControl, RegisterWO, 0, "CONTROL"},
	{BlockHealth, RegStatus, RegisterRO, ofDevice, "STATUS"},
	{BlockHealth, RegFault, RegisterRO, int64(FaultNone), "FAULT"},
	{BlockHealth, RegFaultDetail, RegisterRO, 0, "FAULT_DETAIL RESET_COUNT"},
	{BlockHealth, RegHeartbeat, RegisterRO, ofDevice, "HEARTBEAT"},

	{BlockAdmin, RegSQBaseLow, RegisterRWD, 0, "SQ_BASE_LOW SQ_BASE_HIGH ACQ_BASE_LOW ACQ_BASE_HIGH SQ_LOG2 ACQ_LOG2 ADMIN_VECTOR"},
	{BlockAdmin, RegAdminControl, RegisterRW, 0, "ADMIN_CONTROL"},
	{BlockAdmin, RegAdminStatus, RegisterRO, 0, "ADMIN_STATUS"},
	{BlockAdmin, RegSQProducer, RegisterRW, 0, "SQ_PRODUCER"},
	{BlockAdmin, RegSQConsumer, RegisterRO, 0, "SQ_CONSUMER"},
	{BlockAdmin, RegACQConsumer, RegisterRW, 0, "ACQ_CONSUMER"},
	{BlockAdmin, RegEventsLost, RegisterRO, 0, "EVENTS_LOST"},

	{BlockClock, RegClockLow, RegisterRO, ofDevice, "CLOCK_LOW CLOCK_HIGH"},
	{BlockClock, RegClockResolution, RegisterRO, ClockResolution, "CLOCK_RESOLUTION"},

	{BlockChannels, RegChannels, RegisterRO, 0, "CHANNELS TRANSMIT_HIGH TRANSMIT_LOW TRANSMIT_HIGH_HIGHEST TRANSMIT_LOW_HIGHEST " +
		"RECEIVE_LEVEL RECEIVE_HIGHEST"},
	{BlockChannels, RegReceiveSize, RegisterRO, ofDevice, "RECEIVE_SIZE"},
	{BlockChannels, RegStoppedBy, RegisterRO, 0, "STOPPED_BY STOPPED"},

	{BlockInterrupt, RegVectors, RegisterRO, ofDevice, "VECTORS"},
	{BlockInterrupt, RegTableOffset, RegisterRO, MSIXTableOffset, "TABLE_OFFSET"},
	{BlockInterrupt, RegPBAOffset, RegisterRO, MSIXPBAOffset, "PBA_OFFSET"},

	{BlockDMA, RegDMAEngines, RegisterRO, int64(DMAEngineCount), "DMA_ENGINES"},
	{BlockDMA, RegDMAControl, RegisterRW, 0, "DMA_CONTROL"},
	{BlockDMA, RegPolicyTx, RegisterRW, ofDevice, "POLICY_TX POLICY_RX MINPULSE_TX MINPULSE_RX"},
	{BlockDMA, RegProgressLow, RegisterRWD, 0, "PROGRESS_LOW PROGRESS_HIGH"},
	{BlockDMA, RegPulseTx, RegisterWO, 0, "PULSE_TX PULSE_RX"},
	{BlockDMA, RegPulseDeadline, RegisterRW, PulseDeadlineReset, "PULSE_DEADLINE"},
	{BlockDMA, RegPulseTimeouts, RegisterRO, 0, "PULSE_TIMEOUTS PULSES_REFUSED"},
	{BlockDMA, RegLogBaseLow, RegisterRWD, 0, "LOG_BASE_LOW LOG_BASE_HIGH LOG_LOG2"},
	{BlockDMA, RegLogConsumer, RegisterRW, 0, "LOG_CONSUMER"},
	{BlockDMA, RegLogProducer, RegisterRO, 0, "LOG_PRODUCER LOG_LOST"},

	{BlockCounters, RegCounterCount, RegisterRO, int64(CounterCount), "COUNTER_COUNT"},
}
