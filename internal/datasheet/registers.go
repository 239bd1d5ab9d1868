package datasheet

// BAR0 holds registers, in blocks that are chained by type and version so that
// driver and device can differ in age (SPEC.md 2). Every register is 32 bits
// wide and is read or written whole and aligned; a 64-bit quantity is two
// registers, low half first, and where the halves must agree the device latches
// the high half when the low half is read.

// Block types. Types that are not listed are for others to skip.
const (
	BlockIdentity  uint32 = 0x0001
	BlockHealth    uint32 = 0x0002
	BlockProcessor uint32 = 0x0003
	BlockAdmin     uint32 = 0x0004
	BlockDMA       uint32 = 0x0005
	BlockClock     uint32 = 0x0006
	BlockCounters  uint32 = 0x0007
	BlockInterrupt uint32 = 0x0008
	BlockChannels  uint32 = 0x0009
)

// Every block starts with this header, at offsets from the block's start. The
// chain starts at offset 0 of BAR0 with the identity block. Versions are
// major<<16 | minor; a driver refuses a major version that it does not know.
const (
	BlockHeaderSize = 0x10
	BlockRegType    = 0x00
	BlockRegVersion = 0x04
	// BlockRegNext is the offset in BAR0 of the next block, zero in the last.
	BlockRegNext = 0x08
	// BlockRegSize is the size of the block in bytes, header included.
	BlockRegSize = 0x0c
)

// Where a device of this version has its blocks, MSI-X table and pending bits.
// A driver finds the blocks by walking the chain.
const (
	BAR0Size        = 0x4000
	IdentityOffset  = 0x0000
	HealthOffset    = 0x0100
	AdminOffset     = 0x0200
	ClockOffset     = 0x0300
	ChannelsOffset  = 0x0340
	CounterOffset   = 0x0400
	InterruptOffset = 0x0600
	DMAOffset       = 0x0700
	ProcessorOffset = 0x0800
	MSIXTableOffset = 0x2000
	MSIXPBAOffset   = 0x3000
)

// BlockVersion1 is the version of all blocks of this device: 1.0.
const BlockVersion1 uint32 = 1 << 16

// Identity block.
const (
	IdentitySize = 0x80
	// RegMagic holds Magic.
	RegMagic = 0x10
	// RegDeviceVersion is major<<16 | minor<<8 | patch.
	RegDeviceVersion = 0x14
	RegFeaturesLow   = 0x18
	RegFeaturesHigh  = 0x1c
	// RegMaxEndpoints counts endpoint 0, which is reserved.
	RegMaxEndpoints = 0x20
	RegMaxCQs       = 0x24
	RegMaxRegions   = 0x28
	RegMaxPtags     = 0x2c
	// RegMaxQueueLog2 and RegMaxCQLog2 are exponents of two.
	RegMaxQueueLog2 = 0x30
	RegMaxCQLog2    = 0x34
	RegMaxSegments  = 0x38
	// RegMaxTransfer is the largest message in bytes.
	RegMaxTransfer = 0x3c
	// RegMTU is the largest frame of the wire in bytes, wire header included.
	RegMTU = 0x40
	// RegSRAMSize is the size of BAR4 in bytes.
	RegSRAMSize = 0x44
	RegMACLow   = 0x48
	RegMACHigh  = 0x4c
	// RegPageSizeLog2 is the exponent of the doorbell page size.
	RegPageSizeLog2 = 0x50
	// RegSRAMBase is where in BAR4 the memory begins that the device gives to endpoints
	// and regions, RegSRAMFree how many bytes of it are not in use.
	RegSRAMBase = 0x54
	RegSRAMFree = 0x58
)

// Magic reads "TRPZ" in memory order.
const Magic uint32 = 0x5a505254

// Feature bits of the identity block.
const (
	FeatureRing          uint64 = 1 << 4
	FeatureChannel       uint64 = 1 << 5
	FeatureEager         uint64 = 1 << 6
	FeatureDoorbellMarks uint64 = 1 << 11
)

// Health block.
const (
	HealthSize = 0x40
	// RegControl: write ControlReset to reset the device.
	RegControl = 0x10
	// RegStatus holds the Device bits.
	RegStatus = 0x14
	// RegFault holds a Fault code, RegFaultDetail what belongs to it.
	RegFault       = 0x18
	RegFaultDetail = 0x1c
	// RegResetCount counts resets since power-on.
	RegResetCount = 0x20
	// RegHeartbeat changes whenever the device has made progress.
	RegHeartbeat = 0x24
)

// ControlReset resets the device; it reads as zero.
const ControlReset uint32 = 0x1

// Bits of the status register.
const (
	DeviceReady     uint32 = 0x1
	DeviceResetting uint32 = 0x2
	DeviceFatal     uint32 = 0x4
	DeviceLinkUp    uint32 = 0x8
	// DeviceProgramStopped: a control program was refused or stopped. The device
	// goes on without it.
	DeviceProgramStopped uint32 = 0x10
)

// Fault codes.
const (
	FaultNone uint32 = 0
	// FaultAdminDMA: an admin ring could not be read or written. Detail is the
	// low half of the bus address.
	FaultAdminDMA uint32 = 1
	// FaultAdminIndex: the host wrote an impossible admin index. Detail is it.
	FaultAdminIndex uint32 = 2
	// FaultMemory: memory that the device used has gone: its owner has unmapped it, or
	// cut off its file. Detail is 0.
	FaultMemory uint32 = 3
)

// Admin block. Base addresses, sizes and vector may be written only while the
// queue is disabled.
const (
	AdminSize       = 0x60
	RegSQBaseLow    = 0x10
	RegSQBaseHigh   = 0x14
	RegACQBaseLow   = 0x18
	RegACQBaseHigh  = 0x1c
	RegSQLog2       = 0x20
	RegACQLog2      = 0x24
	RegAdminVector  = 0x28
	RegAdminControl = 0x2c
	RegAdminStatus  = 0x30
	// RegSQProducer is the doorbell of the submission queue: free-running.
	RegSQProducer = 0x34
	// RegSQConsumer is the number of commands that the device has fetched: free-running.
	RegSQConsumer = 0x38
	// RegACQConsumer is the number of entries that the host has taken: free-running.
	RegACQConsumer = 0x3c
	// RegEventsLost counts events for which there was no room.
	RegEventsLost = 0x40
)

// Bits of the admin block's control and status registers.
const (
	AdminEnable  uint32 = 0x1
	AdminEnabled uint32 = 0x1
	AdminError   uint32 = 0x2
)

// Clock block: a real-time clock in units of RegClockResolution nanoseconds
// (MINI: 100 ns). Reading the low half latches the high half.
const (
	ClockSize          = 0x20
	RegClockLow        = 0x10
	RegClockHigh       = 0x14
	RegClockResolution = 0x18
	// ClockResolution in nanoseconds.
	ClockResolution = 100
)

// Channels block: how full the FIFOs of channels are. Levels are of now, the highest ones
// since the device was reset.
const (
	ChannelsSize = 0x40
	// RegChannels is the number of endpoints of kind Channel.
	RegChannels = 0x10
	// RegTransmitHigh and RegTransmitLow are messages that wait or are being sent, by priority.
	RegTransmitHigh        = 0x14
	RegTransmitLow         = 0x18
	RegTransmitHighHighest = 0x1c
	RegTransmitLowHighest  = 0x20
	// RegReceiveLevel is cells in the receive FIFO, RegReceiveSize how many it holds.
	RegReceiveLevel   = 0x24
	RegReceiveHighest = 0x28
	RegReceiveSize    = 0x2c
	// RegStoppedBy is the number of peer stations that have said stop, RegStopped how many the device
	// has told to stop; neither has been followed by a start.
	RegStoppedBy = 0x30
	RegStopped   = 0x34
)

// Interrupt block.
const (
	InterruptSize = 0x20
	// RegVectors is the number of MSI-X vectors.
	RegVectors = 0x10
	// RegTableOffset and RegPBAOffset are offsets in BAR0, as in config space.
	RegTableOffset = 0x14
	RegPBAOffset   = 0x18
)

// Vectors is the number of MSI-X vectors of this device. Vector 0 is the one
// that the driver gives to the admin queue.
const Vectors = 64

// Counters block: RegCounterCount 64-bit counters from RegCounterBase on, in
// the order of Counter. Reading a low half latches its high half.
const (
	RegCounterCount = 0x10
	RegCounterBase  = 0x20
	CountersSize    = RegCounterBase + 8*int(CounterCount)
)

// Counter numbers a counter of the device.
type Counter int

const (
	CounterFramesSent Counter = iota
	CounterFramesReceived
	CounterBytesSent     // payload bytes
	CounterBytesReceived // payload bytes
	CounterMessagesSent
	CounterMessagesReceived
	CounterFramesDropped // bad, stale or unexpected frames
	CounterChecksumErrors
	CounterReceiveQueueEmpty
	CounterFramesRetransmitted
	CounterFramesDuplicate
	CounterTimeouts
	CounterProtectionErrors
	CounterDMAFaults
	CounterBadDoorbells
	CounterBadRegisterAccesses
	CounterInterrupts
	CounterCompletions
	// CounterPayloadsDiscarded counts payloads of ring messages that had no place.
	CounterPayloadsDiscarded
	CounterEagerBlocks  // blocks of eager regions that were taken from device memory
	CounterEagerReads   // blocks of eager regions that were read from host memory
	CounterEagerRefused // registrations that found no room for their blocks
	CounterCellsSent
	CounterCellsReceived
	CounterCellsDropped // for want of room, a channel or a sound header
	CounterChannelStops // times that a peer was told to stop sending cells
	CounterStopsTaken   // times that a peer has said stop

	CounterEagerLanded      // blocks of eager regions in which a message has landed
	CounterEagerWrittenBack // blocks of such regions, or parts of them, that were written to host memory
	CounterCount
)

var counterNames = [CounterCount]string{
	"frames_sent", "frames_received", "bytes_sent", "bytes_received",
	"messages_sent", "messages_received", "frames_dropped", "checksum_errors",
	"receive_queue_empty", "frames_retransmitted", "frames_duplicate", "timeouts",
	"protection_errors", "dma_faults", "bad_doorbells", "bad_register_accesses",
	"interrupts", "completions", "payloads_discarded", "eager_blocks", "eager_reads", "eager_refused",
	"cells_sent", "cells_received", "cells_dropped", "channel_stops", "channel_stops_taken",
	"eager_landed", "eager_written_back",
}

func (c Counter) String() string { return nameOf(counterNames[:], c, "counter") }
