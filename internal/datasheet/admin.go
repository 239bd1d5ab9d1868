package datasheet

import (
	"fmt"
	"structs"

	"github.com/trapeze-nic/trapeze/internal/mac"
)

// AdminEntrySize is the size in bytes of an entry of either admin ring.
const AdminEntrySize = 128

// Opcode names an admin command (SPEC.md 7.2).
type Opcode uint16

// Admin commands. CONNECT_WAIT, CONNECT_REQUEST and CONNECT_ACCEPT end when
// the network answers or their timeout runs out, so replies may come in another
// order than the commands went.
const (
	OpNop Opcode = iota
	OpCreatePtag
	OpDestroyPtag
	OpRegisterMemory
	OpDeregisterMemory
	OpCreateCQ
	OpDestroyCQ
	OpCreateEndpoint
	OpDestroyEndpoint
	OpQueryEndpoint
	OpConnectWait
	OpConnectAccept
	OpConnectReject
	OpConnectRequest
	OpDisconnect
	OpAbort
	OpSetPayload
	OpModifyEndpoint
	OpModifyMemory
	OpResizeCQ
)

var opcodeNames = [...]string{
	"NOP", "CREATE_PTAG", "DESTROY_PTAG", "REGISTER_MEMORY", "DEREGISTER_MEMORY",
	"CREATE_CQ", "DESTROY_CQ", "CREATE_ENDPOINT", "DESTROY_ENDPOINT",
	"QUERY_ENDPOINT", "CONNECT_WAIT", "CONNECT_ACCEPT", "CONNECT_REJECT",
	"CONNECT_REQUEST", "DISCONNECT", "ABORT",
	"SET_PAYLOAD", "MODIFY_ENDPOINT", "MODIFY_MEMORY", "RESIZE_CQ",
}

func (o Opcode) String() string { return nameOf(opcodeNames[:], o, "opcode") }

// Command is one entry of the admin submission queue.
type Command struct {
	_      structs.HostLayout
	Opcode Opcode
	// ID comes back in the reply. Unique among outstanding commands.
	ID uint16
	_  uint32
	// Payload is laid out by opcode, see Body.
	Payload [15]uint64
}

// AdminEntry is one entry of the admin completion queue: a reply to a command
// or an asynchronous event. The device writes Flags last.
type AdminEntry struct {
	_ structs.HostLayout
	// Kind is EntryReply or EntryEvent.
	Kind uint16
	// ID is the command's, zero for events.
	ID uint16
	// Result of the command, ResultSuccess for events.
	Result Result
	// Field is the byte offset in the command of the field that was refused,
	// zero if none was.
	Field uint16
	// Payload is laid out by opcode or as Event, see Reply.
	Payload [14]uint64
	_       uint32
	// Flags holds the phase bit, as in Completion. Use LoadFlags and Publish.
	Flags uint32
}

// Kinds of AdminEntry.
const (
	EntryReply uint16 = 1
	EntryEvent uint16 = 2
)

// Result is the outcome of an admin command. Values below 32 are VIA's return
// codes (vipl.h; 15 and 16 from a later header).
type Result uint16

const (
	ResultSuccess            Result = 0
	ResultInvalidParameter   Result = 2
	ResultResource           Result = 3
	ResultTimeout            Result = 4
	ResultReject             Result = 5
	ResultInvalidReliability Result = 6
	ResultInvalidMTU         Result = 7
	ResultInvalidQoS         Result = 8
	ResultInvalidPtag        Result = 9
	ResultInvalidRDMARead    Result = 10
	ResultDescriptor         Result = 11
	ResultInvalidState       Result = 12
	ResultNoMatch            Result = 14
	ResultNotReachable       Result = 15
	ResultNotSupported       Result = 16
	ResultBadOpcode          Result = 32
	ResultAborted            Result = 33
	ResultDMAFault           Result = 34
	ResultRemoteDescriptor   Result = 35
	ResultConnectionLost     Result = 36
	ResultWithdrawn          Result = 37
	ResultRDMAProtection     Result = 38
	ResultPathMTU            Result = 39
)

var resultNames = [...]string{
	ResultSuccess:            "success",
	ResultInvalidParameter:   "invalid parameter",
	ResultResource:           "out of resources, or object in use",
	ResultTimeout:            "timeout",
	ResultReject:             "rejected by the remote side",
	ResultInvalidReliability: "invalid reliability level",
	ResultInvalidMTU:         "invalid maximum transfer size",
	ResultInvalidQoS:         "invalid quality of service",
	ResultInvalidPtag:        "invalid protection tag",
	ResultInvalidRDMARead:    "RDMA read is not supported",
	ResultDescriptor:         "a send descriptor was in error",
	ResultInvalidState:       "invalid state",
	ResultNoMatch:            "no one waits with this discriminator",
	ResultNotReachable:       "remote side not reachable",
	ResultNotSupported:       "not supported by this device",
	ResultBadOpcode:          "unknown opcode",
	ResultAborted:            "aborted",
	ResultDMAFault:           "DMA fault",
	ResultRemoteDescriptor:   "the receiver's descriptor was in error",
	ResultConnectionLost:     "the peer no longer answers",
	ResultWithdrawn:          "the client no longer waits",
	ResultRDMAProtection:     "RDMA was not allowed",
	ResultPathMTU:            "the path does not carry frames as large as the MTU",
}

func (r Result) String() string { return nameOf(resultNames[:], r, "result") }

// Kind of an endpoint. The device states in FEATURES which kinds it has.
type Kind uint8

const (
	KindVI      Kind = 1
	KindRing    Kind = 2 // Trapeze rings
	KindChannel Kind = 3 // MINI's channels
	KindFrame   Kind = 4 // raw Ethernet frames
	// KindReceiveQueue is a receive queue that several VIs share.
	KindReceiveQueue Kind = 5
)

var kindNames = [...]string{
	KindVI: "VI", KindRing: "ring", KindChannel: "channel", KindFrame: "frame",
	KindReceiveQueue: "receive queue",
}

func (k Kind) String() string { return nameOf(kindNames[:], k, "kind") }

// Reliability is a VIA reliability level; the values are bits of a mask
// (vipl.h).
type Reliability uint8

const (
	Unreliable        Reliability = 1
	ReliableDelivery  Reliability = 2
	ReliableReception Reliability = 4
)

var reliabilityNames = [...]string{
	Unreliable: "unreliable delivery", ReliableDelivery: "reliable delivery",
	ReliableReception: "reliable reception",
}

func (r Reliability) String() string { return nameOf(reliabilityNames[:], r, "reliability") }

// State of a VI (VIA 1.0, vipl.h).
type State uint8

const (
	StateIdle           State = 0
	StateConnected      State = 1
	StateConnectPending State = 2
	StateError          State = 3
)

var stateNames = [...]string{
	StateIdle: "idle", StateConnected: "connected", StateConnectPending: "connect pending",
	StateError: "error",
}

func (s State) String() string { return nameOf(stateNames[:], s, "state") }

// Access rights of a memory region.
type Access uint32

// Local reads and writes through this side's own descriptors are always
// granted, but for writes to a region registered with AccessReadOnly.
const (
	AccessRDMAWrite Access = 0x1
	AccessRDMARead  Access = 0x2
	// AccessEager regions also have device memory, in blocks (SPEC.md 9.1).
	AccessEager    Access = 0x4
	AccessPageList Access = 0x8 // reserved: IOVA names a list of pages
	AccessReadOnly Access = 0x10
	// AccessEagerWide, with AccessEager: the blocks have 128 bytes.
	AccessEagerWide Access = 0x20
	// AccessEagerLands, with AccessEager: messages land in the blocks, which the device writes back.
	AccessEagerLands Access = 0x40
	// AccessEagerHeld, with AccessEagerLands: the device does not write the blocks back by itself.
	AccessEagerHeld Access = 0x80
	AccessReserved  Access = 0xffffff00
)

// MAC is an IEEE 802 address.
type MAC = mac.MAC

// Broadcast is the address of all stations on the wire.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Discriminator names a connection point within a host: Len bytes.
type Discriminator struct {
	_    structs.HostLayout
	Len  uint8
	_    [3]byte
	Data [MaxDiscriminator]byte
}

// CommandBody is the body of a command.
type CommandBody interface {
	PtagBody | RegisterMemoryBody | MemoryBody | CreateCQBody | CQBody | CreateEndpointBody | EndpointBody | ConnectWaitBody | ConnectAcceptBody |
		ConnectRejectBody | ConnectRequestBody | AbortBody | SetPayloadBody | ModifyEndpointBody | ModifyMemoryBody | ResizeCQBody
}

// ReplyBody is the body of a reply or an event.
type ReplyBody interface {
	PtagBody | RegionReply | CQBody | ResizeCQReply | EndpointCreated | EndpointReply | ConnectionReply | ConnectedReply | Event
}

// nameOf returns the name of v, or what it is and its number if it has none.
func nameOf[T ~uint8 | ~uint16 | ~uint32 | ~int](names []string, v T, what string) string {
	if v >= 0 && uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}
