package via

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// The types that cross from the application to the NIC as they are. Package
// descriptors documents them.
type (
	// Descriptor is a VI descriptor in registered memory, see VI.NewDescriptors. It has
	// these methods:
	//
	//	Prepare()                             drops segments, status and options
	//	Rearm()                               drops the status only: to post it once more
	//	AddData(address, handle, length)      adds a segment; Memory.AddTo is shorter
	//	Inline() []byte, SetInline(n)         the payload stands in the descriptor itself
	//	SetImmediate(v), Immediate() (v, ok)  32 bits that go with the message
	//	SetRDMAWrite(address, handle)         makes it an RDMA write
	//	SetRDMARead(address, handle)          makes it an RDMA read
	//	SetFence()                            begins after the RDMA reads before it
	//	Status() Status, Length() uint32      how it completed, and with how many bytes
	//	Segments() []DataSegment              what AddData has added
	//	User() *User                          a word of the application's own, which
	//	                                      completions of a CQ give out, and whether
	//	                                      a send that succeeds is reported
	//
	// The others are for the driver.
	Descriptor = descriptors.Descriptor
	// Status of a completed descriptor.
	Status = datasheet.Status
	// MAC is the address of a NIC on its wire.
	MAC = datasheet.MAC
	// Reliability level of a VI; the values are bits of a mask.
	Reliability = datasheet.Reliability
	// State of a VI.
	State = datasheet.State
)

// Reliability levels.
const (
	Unreliable        = datasheet.Unreliable
	ReliableDelivery  = datasheet.ReliableDelivery
	ReliableReception = datasheet.ReliableReception
)

// States of a VI.
const (
	Idle           = datasheet.StateIdle
	Connected      = datasheet.StateConnected
	ConnectPending = datasheet.StateConnectPending
	ErrorState     = datasheet.StateError
)

// Error bits of a Status. Several may be set together.
const (
	StatusFormatError      = datasheet.StatusFormatError
	StatusProtectionError  = datasheet.StatusProtectionError
	StatusLengthError      = datasheet.StatusLengthError
	StatusPartialPacket    = datasheet.StatusPartialPacket
	StatusFlushed          = datasheet.StatusFlushed
	StatusTransportError   = datasheet.StatusTransportError
	StatusRDMAProtection   = datasheet.StatusRDMAProtection
	StatusRemoteDescriptor = datasheet.StatusRemoteDescriptor
)

// Which frames an endpoint for raw Ethernet frames takes, see VIAttributes.
const (
	NoFrames      = driver.NoFrames
	StationFrames = driver.StationFrames
	AllFrames     = driver.AllFrames
)

// The work queues of a VI.
const (
	SendQueue = driver.SendQueue
	RecvQueue = driver.RecvQueue
)

// Limits and defaults.
const (
	DefaultMaxTransfer = driver.DefaultMaxTransfer
	DefaultDepth       = driver.DefaultDepth
	// MaxDiscriminator is the longest connection discriminator in bytes.
	MaxDiscriminator = datasheet.MaxDiscriminator
)

// The types that package driver has for both.
type (
	// NICAttributes describe a NIC and state its limits.
	NICAttributes = driver.NICAttributes
	// VI is a virtual interface, from NIC.CreateVI.
	VI = driver.VI
	// VIAttributes are given when a VI is created. VI.Query returns a VIState.
	VIAttributes = driver.VIAttributes
	VIState      = driver.VIState
	// Frames says which raw Ethernet frames an endpoint sends and takes.
	Frames = driver.Frames
	// ReceiveQueue is one that several VIs share, from NIC.CreateReceiveQueue.
	ReceiveQueue           = driver.ReceiveQueue
	ReceiveQueueAttributes = driver.ReceiveQueueAttributes
	// CQ is a completion queue, from NIC.CreateCQ, and Completion what it gives out.
	CQ         = driver.CQ
	Completion = driver.Completion
	// Queue names one of the two work queues of a VI.
	Queue = driver.Queue
	// Connection is a request to be connected with a VI, from NIC.ConnectWait.
	Connection = driver.Connection
	// Remote describes the other end of a connection or of a request for one.
	Remote = driver.Remote
	// Stats, VIStats and CQStats have the counters of a NIC, a VI and a CQ, with the name, help and
	// unit of each in its tags.
	Stats   = driver.Stats
	VIStats = driver.VIStats
	CQStats = driver.CQStats
	// Memory is one registration of memory, from NIC.Alloc or NIC.Register.
	Memory = driver.Memory
	// MemoryAttributes are given when memory is registered.
	MemoryAttributes = driver.MemoryAttributes
	// Ptag is a protection tag, from NIC.CreatePtag.
	Ptag = driver.Ptag
	// RegistrationCache registers memory at its first use, from NIC.NewCache.
	RegistrationCache = driver.RegistrationCache
	// CacheOptions bound a RegistrationCache, whose Stats are CacheStats.
	CacheOptions = driver.CacheOptions
	CacheStats   = driver.CacheStats
)
