package datasheet

import (
	"fmt"
	"structs"
)

// PtagBody is the body of DESTROY_PTAG and the reply to CREATE_PTAG.
type PtagBody struct {
	_    structs.HostLayout
	Ptag uint32
}

// RegisterMemoryBody is the body of REGISTER_MEMORY: Length bytes that the
// application knows at Address and the bus at IOVA.
type RegisterMemoryBody struct {
	_       structs.HostLayout
	Address uint64
	Length  uint64
	IOVA    uint64
	Ptag    uint32
	Access  Access
}

// MemoryBody is the body of DEREGISTER_MEMORY.
type MemoryBody struct {
	_      structs.HostLayout
	Handle uint32
}

// CreateCQBody is the body of CREATE_CQ.
type CreateCQBody struct {
	_ structs.HostLayout
	// IOVA of 2^Log2 entries, aligned to the size of an entry, zeroed.
	IOVA uint64
	// IndexIOVA is the bus address of a 32-bit word in which the host keeps the
	// free-running number of entries it has taken. The device reads it when its
	// last copy says that the queue is full.
	IndexIOVA uint64
	// Vector to raise, or NoVector.
	Vector uint16
	Log2   uint8
	_      uint8
	_      uint32
}

// CQBody is the body of DESTROY_CQ and the reply to CREATE_CQ.
type CQBody struct {
	_  structs.HostLayout
	CQ uint32
}

// CreateEndpointBody is the body of CREATE_ENDPOINT.
type CreateEndpointBody struct {
	_ structs.HostLayout
	// SendIOVA and RecvIOVA are the bus addresses of the two rings of tokens; zero of kind
	// Ring, whose rings are in device memory.
	SendIOVA uint64
	RecvIOVA uint64
	Ptag     uint32
	// MaxTransfer is the largest message in bytes, 1 to the device's limit; of kind Ring
	// RingMessage and the largest payload.
	MaxTransfer uint32
	// SendCQ and RecvCQ take the completions; NoCQ for none.
	SendCQ uint32
	RecvCQ uint32
	// SendVector and RecvVector are raised by the queue itself if it has no CQ
	// and has been armed; NoVector for none.
	SendVector  uint16
	RecvVector  uint16
	Kind        Kind
	Reliability Reliability
	SendLog2    uint8
	RecvLog2    uint8
	// Rights enables remote operations on the endpoint: AccessRDMAWrite,
	// AccessRDMARead.
	Rights Access
	// Options of the endpoint.
	Options EndpointOptions
}

// EndpointOptions are bits that choose how an endpoint works.
type EndpointOptions uint32

const (
	// EndpointPromiscuous, of kind Frame: it also takes frames that are for other
	// stations.
	EndpointPromiscuous EndpointOptions = 0x1
	// EndpointBreaks, of a reliable VI: a message that finds no receive breaks the
	// connection.
	EndpointBreaks EndpointOptions = 0x2
	// EndpointShares, of a VI: RecvIOVA is the number of the endpoint of kind ReceiveQueue
	// whose receives it takes.
	EndpointShares EndpointOptions = 0x4
	// EndpointSpaced, of a channel: the CRC so far and the clock are stored behind each
	// cell that is received.
	EndpointSpaced EndpointOptions = 0x8
	// EndpointKernel, of a channel: it is channel 0, which sends on all the others. Each of
	// its messages begins with the number of a channel.
	EndpointKernel EndpointOptions = 0x10
	// EndpointEager, of a VI: its rings of tokens are also in device memory, in blocks as
	// those of an eager region.
	EndpointEager EndpointOptions = 0x20
	// EndpointOptionsReserved bits are zero.
	EndpointOptionsReserved EndpointOptions = 0xffffffc0
)

// EndpointBody is the body of DESTROY_ENDPOINT, QUERY_ENDPOINT and DISCONNECT.
type EndpointBody struct {
	_        structs.HostLayout
	Endpoint uint32
}

// EndpointCreated is the reply to CREATE_ENDPOINT. All but Endpoint is zero unless the
// endpoint is a ring, a channel or a VI with EndpointEager.
type EndpointCreated struct {
	_        structs.HostLayout
	Endpoint uint32
	// Handle is that of the region of device memory that holds both rings and the payload
	// table. It has the endpoint's protection tag, and ends with the endpoint.
	Handle uint32
	// Send and Recv are where the rings of RingSlot begin, and Table where the payload table
	// does: offsets in BAR4, which are the application addresses in that region too. Of a
	// channel Send is where its control page is, and the others are zero. Of a VI with
	// EndpointEager Send and Recv are where the blocks of its rings of tokens begin, behind
	// which their status bytes stand.
	Send  uint32
	Recv  uint32
	Table uint32
	_     uint32
}

// EndpointReply is the reply to QUERY_ENDPOINT. Indices are free-running.
type EndpointReply struct {
	_              structs.HostLayout
	SendProducer   uint32
	SendCompleted  uint32
	RecvProducer   uint32
	RecvCompleted  uint32
	RemoteEndpoint uint32
	State          State
	_              uint8
	RemoteMAC      MAC
}

// ConnectWaitBody is the body of CONNECT_WAIT.
type ConnectWaitBody struct {
	_ structs.HostLayout
	// TimeoutMS in milliseconds, 1 to 2^32-1.
	TimeoutMS uint32
	Local     Discriminator
}

// ConnectionReply is the reply to CONNECT_WAIT: a connection request that waits
// for CONNECT_ACCEPT or CONNECT_REJECT.
type ConnectionReply struct {
	_           structs.HostLayout
	Connection  uint32
	MaxTransfer uint32
	Reliability Reliability
	// Kind of the client's endpoint: only one of the same kind can accept.
	Kind         Kind
	RemoteMAC    MAC
	RemoteRights Access
	// Remote is the discriminator that the client gave as its own.
	Remote Discriminator
}

// ConnectAcceptBody is the body of CONNECT_ACCEPT.
type ConnectAcceptBody struct {
	_          structs.HostLayout
	Connection uint32
	Endpoint   uint32
	TimeoutMS  uint32
}

// ConnectRejectBody is the body of CONNECT_REJECT.
type ConnectRejectBody struct {
	_          structs.HostLayout
	Connection uint32
}

// ConnectRequestBody is the body of CONNECT_REQUEST.
type ConnectRequestBody struct {
	_         structs.HostLayout
	Endpoint  uint32
	TimeoutMS uint32
	RemoteMAC MAC
	_         uint16
	Remote    Discriminator
	Local     Discriminator
}

// ConnectedReply is the reply to CONNECT_REQUEST and CONNECT_ACCEPT: who is at
// the other end.
type ConnectedReply struct {
	_              structs.HostLayout
	RemoteEndpoint uint32
	MaxTransfer    uint32
	Reliability    Reliability
	_              uint8
	RemoteMAC      MAC
	RemoteRights   Access
}

// AbortBody is the body of ABORT: the ID of an outstanding CONNECT_WAIT,
// CONNECT_REQUEST or CONNECT_ACCEPT, which then ends with ResultAborted.
type AbortBody struct {
	_  structs.HostLayout
	ID uint16
}

// SetPayloadBody is the body of SET_PAYLOAD: Length writable bytes at application
// address Address of region Handle become an entry of an endpoint's payload table.
// With Handle and Length zero the entry names nothing.
type SetPayloadBody struct {
	_        structs.HostLayout
	Address  uint64
	Endpoint uint32
	// Entry is 0 to PayloadEntries-1.
	Entry  uint32
	Handle uint32
	Length uint32
	// Tag, of a ring, is that of the messages whose payload goes there: Entry modulo
	// PayloadEntries. Zero of other kinds.
	Tag uint32
	_   uint32
}

// ModifyEndpointBody is the body of MODIFY_ENDPOINT. Its fields but Endpoint are where
// CreateEndpointBody has them.
type ModifyEndpointBody struct {
	_           structs.HostLayout
	Endpoint    uint32
	_           [3]uint32
	Ptag        uint32
	MaxTransfer uint32
	_           [3]uint32
	_           uint8
	Reliability Reliability
	_           uint16
	Rights      Access
	Options     EndpointOptions
}

// ModifyMemoryBody is the body of MODIFY_MEMORY. Ptag and Access are where
// RegisterMemoryBody has them.
type ModifyMemoryBody struct {
	_      structs.HostLayout
	Handle uint32
	_      [5]uint32
	Ptag   uint32
	Access Access
}

// ResizeCQBody is the body of RESIZE_CQ: the queue goes on in another ring, which
// is as CreateCQBody has it.
type ResizeCQBody struct {
	_         structs.HostLayout
	IOVA      uint64
	IndexIOVA uint64
	CQ        uint32
	Log2      uint8
	_         uint8
	_         uint16
}

// ResizeCQReply is the reply to RESIZE_CQ.
type ResizeCQReply struct {
	_ structs.HostLayout
	// Written is the free-running number of entries that were written to the ring
	// that the queue had before.
	Written uint32
}

// EventCode says what happened. Values 0 to 10 are VIA's asynchronous errors
// (vipl.h).
type EventCode uint32

const (
	EventPostDescriptor      EventCode = 0
	EventConnectionLost      EventCode = 1
	EventReceiveQueueEmpty   EventCode = 2
	EventVIOverrun           EventCode = 3
	EventRDMAWriteProtection EventCode = 4
	EventRDMAWriteData       EventCode = 5
	EventRDMAWriteAbort      EventCode = 6
	EventRDMAReadProtection  EventCode = 7
	EventCompletionProtect   EventCode = 8
	EventRDMATransport       EventCode = 9
	EventCatastrophic        EventCode = 10
	EventCQOverrun           EventCode = 32
	EventLink                EventCode = 33
)

var eventNames = [...]string{
	EventPostDescriptor:      "bad descriptor posted",
	EventConnectionLost:      "connection lost",
	EventReceiveQueueEmpty:   "message dropped: receive queue empty",
	EventVIOverrun:           "more descriptors posted than the queue holds",
	EventRDMAWriteProtection: "RDMA write protection error",
	EventRDMAWriteData:       "RDMA write data error",
	EventRDMAWriteAbort:      "RDMA write aborted",
	EventRDMAReadProtection:  "RDMA read protection error",
	EventCompletionProtect:   "completion could not be written",
	EventRDMATransport:       "RDMA transport error",
	EventCatastrophic:        "catastrophic error",
	EventCQOverrun:           "completion queue overrun",
	EventLink:                "link changed",
}

func (c EventCode) String() string { return nameOf(eventNames[:], c, "event") }

// Event is the body of an asynchronous event.
type Event struct {
	_    structs.HostLayout
	Code EventCode
	// Endpoint concerned, zero if none.
	Endpoint uint32
	// CQ concerned, NoCQ if none.
	CQ uint32
	// Detail depends on the code: the doorbell value for EventVIOverrun, 1 (up)
	// or 0 (down) for EventLink, the reason for EventConnectionLost.
	Detail uint32
	// Descriptor is the application address of the one concerned, zero if none.
	Descriptor uint64
}

// DetailText is Detail by name, if the code's details have names, and else as a number.
func (e Event) DetailText() string {
	switch {
	case e.Code == EventConnectionLost && e.Detail == uint32(ResultSuccess):
		return "the peer disconnected"
	case e.Code == EventConnectionLost:
		return Result(e.Detail).String()
	case e.Code == EventLink && e.Detail < 2:
		return []string{"down", "up"}[e.Detail]
	}
	return fmt.Sprint(e.Detail)
}
