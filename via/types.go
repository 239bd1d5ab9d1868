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

// Queue names one of the two work queues of a VI.
type Queue uint8

// The work queues of a VI.
const (
	SendQueue Queue = iota
	RecvQueue
)

func (q Queue) String() string {
	if q == SendQueue {
		return "send queue"
	}
	return "receive queue"
}

// NICAttributes describe a NIC and state its limits.
type NICAttributes struct {
	// Name is the address by which the device was opened.
	Name string
	// Backend that gives access to the device, such as "emulator".
	Backend string
	// HardwareVersion and ProviderVersion, of this package, are
	// major<<16 | minor<<8 | patch.
	HardwareVersion, ProviderVersion uint32
	// Address of the NIC on its wire.
	Address MAC
	// MTU is the largest frame of the wire in bytes. Messages may be longer:
	// the NIC cuts them and puts them together again.
	MTU int
	// MaxTransfer is the largest message in bytes.
	MaxTransfer uint32
	// MaxSegments is the most data segments a descriptor may have.
	MaxSegments int
	// MaxInline is the most bytes that a send may carry in its descriptor, see
	// Descriptor.SetInline; zero if the NIC takes none.
	MaxInline int
	// MaxDiscriminator is the longest discriminator in bytes.
	MaxDiscriminator int
	// MaxVIs, MaxCQs, MaxRegions and MaxPtags count what can exist at a time.
	MaxVIs, MaxCQs, MaxRegions, MaxPtags int
	// MaxRegistered is the most bytes that can be registered at a time, each page counted
	// once, and MaxRegion how many in one registration, as far as the bus addresses of
	// the NIC go. The limits of the process, such as on locked memory, may be lower.
	MaxRegistered, MaxRegion uint64
	// MaxDescriptors is the most descriptors on one work queue.
	MaxDescriptors int
	// MaxCQEntries is the size of the largest completion queue.
	MaxCQEntries int
	// Reliability is the mask of levels that the NIC supports.
	Reliability Reliability
	// RDMAWrite and RDMARead are the masks of levels at which the NIC does
	// remote operations; zero if it does none.
	RDMAWrite, RDMARead Reliability
	// ThreadSafe says that all methods may be called from several goroutines.
	ThreadSafe bool
}

// VIAttributes are given when a VI is created. The zero value is a reliable VI
// with the defaults below.
type VIAttributes struct {
	// Reliability level; zero is ReliableDelivery. Must be the same at both ends
	// of a connection.
	Reliability Reliability
	// MaxTransfer is the largest message in bytes, 1 to the NIC's limit; zero is
	// DefaultMaxTransfer. Must be the same at both ends.
	MaxTransfer uint32
	// Ptag that the VI's memory must have; nil is the NIC's default.
	Ptag *Ptag
	// RDMAWrite and RDMARead let the other end access memory through this VI: regions
	// with its ptag that are registered with the same right. The other end learns it
	// when it connects (Remote), and its NIC sends nothing that is not allowed.
	RDMAWrite, RDMARead bool
	// NeedReceives, of a reliable VI, breaks the connection when a message finds no
	// receive, as VIA has it: AsyncReceiveQueueEmpty here, StatusRemoteDescriptor at the
	// other end. Without it the other end's NIC keeps the message until there is one.
	NeedReceives bool
	// SendDepth and RecvDepth are the numbers of descriptors that the queues hold, 2 to the
	// NIC's limit; zero is DefaultDepth. The NIC may round up.
	SendDepth, RecvDepth int
	// ReceiveQueue is one that several VIs share, from NIC.CreateReceiveQueue, in place of
	// a receive queue of the VI's own, which VIA does not have. RecvDepth is not used
	// then, and a nil Ptag is the queue's.
	ReceiveQueue *ReceiveQueue
	// EagerTokens has the NIC hold what announces a message before it is posted, as eager
	// memory has the message and its descriptor, and NoRoom says what becomes of that if the
	// NIC has no room. Attributes tells whether it does. SetAttributes leaves both. Not with
	// Frames.
	EagerTokens bool
	NoRoom      NoRoom
	// Frames makes an endpoint for raw Ethernet frames instead of a VI, which VIA
	// does not have. It is open at once and cannot be connected; each send is one
	// frame, from its destination address on and without the check sequence, and
	// each receive takes one. Reliability is Unreliable, and MaxTransfer the
	// largest frame; zero is the NIC's MTU.
	Frames Frames
}

// Frames says whether an endpoint sends and takes raw Ethernet frames, and which
// ones. It never sees the frames of VIs.
type Frames uint8

const (
	// NoFrames: it is a VI.
	NoFrames Frames = iota
	// StationFrames: those for this NIC or a group.
	StationFrames
	// AllFrames: those for others too.
	AllFrames
)

// Limits and defaults.
const (
	// DefaultMaxTransfer in bytes must be handled by every NIC of VIA, so that any
	// two ends agree on it.
	DefaultMaxTransfer = 32 << 10
	// DefaultDepth is the number of descriptors a work queue holds if nothing else
	// is said.
	DefaultDepth = 64
	// MaxDiscriminator is the longest connection discriminator in bytes.
	MaxDiscriminator = datasheet.MaxDiscriminator
)

// The types that package driver has for both.
type (
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

// Remote describes the other end of a connection or of a request for one.
type Remote = driver.Remote

// VIState is returned by VI.Query.
type VIState struct {
	State      State
	Attributes VIAttributes
	// SendQueued and RecvQueued are the numbers of descriptors that have been
	// posted and not been taken back with Done or Wait, whether completed or
	// not. VIA's two "queue empty" flags say that they are zero.
	SendQueued, RecvQueued int
	// RemoteMAC and RemoteVI name the other end, zero if there is none.
	RemoteMAC MAC
	RemoteVI  uint32
}
