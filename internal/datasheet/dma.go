package datasheet

import (
	"structs"
)

// DMA block: the two data movement devices of a NIC, one for each direction,
// and the four engines that work for them (SPEC.md 2.9). Optional: a driver
// finds out by walking the chain.
const (
	DMASize = 0x100
	// RegDMAEngines is the number of engines, DMAEngineCount.
	RegDMAEngines = 0x10
	// RegDMAControl holds the DMA bits below.
	RegDMAControl = 0x14
	// RegPolicyTx and RegPolicyRx hold a DMAPolicy each, RegMinPulseTx and
	// RegMinPulseRx its size in bytes, 1 to MaxMinPulse.
	RegPolicyTx   = 0x18
	RegPolicyRx   = 0x1c
	RegMinPulseTx = 0x20
	RegMinPulseRx = 0x24
	// RegProgressLow and RegProgressHigh are the bus address of
	// ProgressAreaSize bytes, aligned to ProgressSize; zero for none.
	RegProgressLow  = 0x28
	RegProgressHigh = 0x2c
	// RegPulseTx and RegPulseRx take a pulse, see PulseWord.
	RegPulseTx = 0x30
	RegPulseRx = 0x34
	// RegPulseDeadline in microseconds: how long a frame waits for the host.
	RegPulseDeadline = 0x38
	RegPulseTimeouts = 0x3c
	RegPulsesRefused = 0x40
	// RegLogBaseLow and RegLogBaseHigh are the bus address of a ring of
	// 2^RegLogLog2 records, aligned to DMARecordSize.
	RegLogBaseLow  = 0x44
	RegLogBaseHigh = 0x48
	RegLogLog2     = 0x4c
	// RegLogConsumer and RegLogProducer are free-running.
	RegLogConsumer = 0x50
	RegLogProducer = 0x54
	RegLogLost     = 0x58
	// DMAEngineBase is where the registers of engine 0 start; each engine has
	// DMAEngineSize bytes.
	DMAEngineBase = 0x60
	DMAEngineSize = 0x10
)

// Registers of an engine, at offsets from where the engine's start.
const (
	EngineRegState    = 0x0 // DMAState
	EngineRegFrame    = 0x4 // number of the frame
	EngineRegLength   = 0x8 // bytes of the frame
	EngineRegProgress = 0xc // bytes of it that the engine has moved
)

// Bits of the DMA block's control register.
const (
	// DMAControlHostTx and DMAControlHostRx let the host's pulses decide netTx and hostRcv.
	DMAControlHostTx uint32 = 0x1
	DMAControlHostRx uint32 = 0x2
	// DMAControlLog makes the device write a DMARecord for each transfer.
	DMAControlLog uint32 = 0x4
	// DMAControlReserved bits are zero.
	DMAControlReserved uint32 = 0xfffffff8
)

// Limits and reset values of the DMA block.
const (
	// MaxMinPulse is the greatest value of RegMinPulseTx and RegMinPulseRx, in
	// bytes: more than the payload of the largest frame.
	MaxMinPulse = 65536
	// PulseDeadlineReset in microseconds.
	PulseDeadlineReset = 10000
	// MinLogLog2 and MaxLogLog2 bound the ring of records: 16 to 65536.
	MinLogLog2 = 4
	MaxLogLog2 = 16
)

// DMAEngine numbers one of the four transfers that a message crosses (US patent
// 6,308,228: the incoming and the outgoing controller of either direction).
type DMAEngine uint32

const (
	EngineHostTx  DMAEngine = iota // hostTx: host memory to NIC memory, transmit
	EngineNetTx                    // netTx: NIC memory to wire
	EngineNetRcv                   // netRcv: wire to NIC memory, receive
	EngineHostRcv                  // hostRcv: NIC memory to host memory
	DMAEngineCount
)

var dmaEngineNames = [DMAEngineCount]string{"hostTx", "netTx", "netRcv", "hostRcv"}

func (e DMAEngine) String() string { return nameOf(dmaEngineNames[:], e, "engine") }

// DMAState says what an engine does.
type DMAState uint32

const (
	DMAIdle  DMAState = 0
	DMABusy  DMAState = 1
	DMAWaits DMAState = 2 // for a pulse of the host
)

var dmaStateNames = [...]string{DMAIdle: "idle", DMABusy: "busy", DMAWaits: "waits for a pulse"}

func (s DMAState) String() string { return nameOf(dmaStateNames[:], s, "DMA state") }

// DMAPolicy numbers a delivery policy that the device has built in: how many
// bytes of a frame that arrives an idle outgoing engine may move.
type DMAPolicy uint32

const (
	// DMAPolicyOwn is the device's own configuration if it is none of the
	// others. It can be read, not written.
	DMAPolicyOwn             DMAPolicy = 0
	DMAPolicyStoreAndForward DMAPolicy = 1
	DMAPolicyStatic          DMAPolicy = 2
	DMAPolicyCutThrough      DMAPolicy = 3
	DMAPolicyEager           DMAPolicy = 4
	DMAPolicyAMP             DMAPolicy = 5
	DMAPolicyAuto            DMAPolicy = 6
)

var dmaPolicyNames = [...]string{
	"the device's own", "store-and-forward", "static", "cut-through", "eager", "amp", "auto",
}

func (p DMAPolicy) String() string { return nameOf(dmaPolicyNames[:], p, "DMA policy") }

// Fields of a pulse register.
const (
	// PulseBytes is the number of bytes that the outgoing engine may move.
	PulseBytes uint32 = 0x00ffffff
	// PulseFrame is the low 8 bits of the frame's number.
	PulseFrame uint32 = 0xff000000
)

// PulseWord is the value of RegPulseTx or RegPulseRx that lets n bytes, 1 to
// PulseBytes, of the given frame move on.
func PulseWord(frame, n uint32) uint32 { return frame<<24 | n&PulseBytes }

// SplitPulse returns the parts of a pulse register's value: the low 8 bits of
// the frame's number and the bytes.
func SplitPulse(v uint32) (frame uint8, n uint32) { return uint8(v >> 24), v & PulseBytes }

// ProgressSize is the size in bytes of Progress, ProgressAreaSize that of the
// two of a device: transmit, then receive.
const (
	ProgressSize     = 64
	ProgressAreaSize = 2 * ProgressSize
)

// ProgressActive is the flag of Progress that says that a frame is in progress.
const ProgressActive uint32 = 0x1

// Progress is a copy of the progress counters of one direction that the device
// keeps in host memory. Use Load and Store: the other side is reading or
// writing.
type Progress struct {
	_ structs.HostLayout
	// Sequence is odd while the device writes the rest, and changes each time.
	Sequence uint32
	// Frame is the number of the frame in progress, or of the last one: frames
	// with payload of this direction, counted from 0 since the last reset.
	Frame uint32
	// Length of the frame's payload in bytes.
	Length uint32
	// Arrived counts the bytes of it that the incoming engine has moved.
	Arrived uint32
	// Sent counts those that the outgoing engine has, at most Arrived.
	Sent uint32
	// Queued is the number of frames known to wait behind it.
	Queued uint32
	// Flags holds ProgressActive.
	Flags uint32
	_     uint32
	_     [4]uint64
}

// DMARecordSize is the size in bytes of DMARecord.
const DMARecordSize = 32

// DMARecord is one transfer of one engine in the device's log, a ring of 2^n
// records in host memory. The device writes Flags last.
type DMARecord struct {
	_ structs.HostLayout
	// Start and End in nanoseconds of the device's clock (SPEC.md 2.6).
	Start uint64
	End   uint64
	// Packet is the frame's number, counted as Progress counts but from where
	// the log was switched on.
	Packet uint32
	// Bytes of payload moved.
	Bytes uint32
	// Engine that moved them.
	Engine DMAEngine
	// Flags holds the phase bit, as in Completion, DMARecordBuffer, DMARecordControl and DMARecordQueued. Use LoadFlags and
	// Publish.
	Flags uint32
}

// DMARecordQueued is where the Flags of a DMARecord say how many frames were known to wait behind
// this one when it began. All ones mean that many or more. It is zero for outgoing engines.
const DMARecordQueued uint32 = 0xffff0000

// DMARecordBuffer is where the Flags of a DMARecord name the buffer of the NIC in which the frame is, DMARecordControl
// says that Bytes are those of the header that came ahead of the payload.
const (
	DMARecordBuffer  uint32 = 0x7e
	DMARecordControl uint32 = 0x80
)
