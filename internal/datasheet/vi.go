package datasheet

import (
	"fmt"
	"strings"
	"structs"
)

// Sizes in bytes of the parts of a VI descriptor (VIA 1.0; SPEC.md 5).
const (
	ControlSegmentSize = 32
	AddressSegmentSize = 16
	DataSegmentSize    = 16
)

// ControlSegment is the first 32 bytes of a VI descriptor.
//
// The consumer writes every field but Next and NextHandle before it posts; the
// provider owns the descriptor from the post until it has written Status, which
// it writes last. Use LoadStatus and StoreStatus for Status: the other side is
// writing.
type ControlSegment struct {
	_ structs.HostLayout
	// Next is the application address of the following descriptor on the
	// queue. Written by the provider after the post; zero if unknown.
	Next uint64
	// NextHandle is the memory handle that covers Next.
	NextHandle uint32
	// SegCount is the number of 16-byte segments that follow, the address
	// segment included. Range 0 to MaxSegments+1.
	SegCount uint16
	// Control holds operation and flag bits, see Control.
	Control Control
	// Front is zero on post and at completion. In between it is, of a receive into eager
	// memory, how many bytes from the front of the message are there, see Ready.
	Front uint32
	// Immediate is 32 bits of data carried by the message itself: written by
	// the consumer on send, by the provider on receive.
	Immediate uint32
	// Length in bytes: on post, the total of the data segments; at completion,
	// the bytes moved.
	Length uint32
	// Status is zero while the provider owns the descriptor, see Status.
	Status uint32
}

// AddressSegment names remote memory in an RDMA descriptor. It is the first
// segment after the control segment.
type AddressSegment struct {
	_       structs.HostLayout
	Address uint64
	Handle  uint32
	// Reserved is zero.
	Reserved uint32
}

// DataSegment names one piece of local memory: Length bytes at application
// address Address, inside the region Handle.
type DataSegment struct {
	_       structs.HostLayout
	Address uint64
	Handle  uint32
	Length  uint32
}

// Control is the 16-bit control field of a VI descriptor (VIA 1.0, vipl.h).
type Control uint16

// Operations (bits 0 and 1) and flags of Control.
const (
	OpSend      Control = 0 // also in receive descriptors
	OpRDMAWrite Control = 1
	OpRDMARead  Control = 2

	ControlOpMask     Control = 0x0003
	ControlImmediate  Control = 0x0004
	ControlQueueFence Control = 0x0008
	// ControlInline says that the payload stands where the data segments would.
	// VIA does not have it.
	ControlInline   Control = 0x0010
	ControlReserved Control = 0xffe0
)

// Op returns the operation bits of c.
func (c Control) Op() Control { return c & ControlOpMask }

// Status is the 32-bit status field of a VI descriptor (VIA 1.0, vipl.h).
type Status uint32

// Status bits. StatusDone is set in every completion, with or without errors;
// several error bits may be set together.
const (
	StatusDone             Status = 0x00001
	StatusFormatError      Status = 0x00002
	StatusProtectionError  Status = 0x00004
	StatusLengthError      Status = 0x00008
	StatusPartialPacket    Status = 0x00010
	StatusFlushed          Status = 0x00020
	StatusTransportError   Status = 0x00040
	StatusRDMAProtection   Status = 0x00080
	StatusRemoteDescriptor Status = 0x00100
	StatusErrorMask        Status = 0x001fe
	StatusOpMask           Status = 0x70000
	StatusImmediate        Status = 0x80000
	StatusReserved         Status = 0xfff0fe00

	StatusOpSend            Status = 0x00000
	StatusOpReceive         Status = 0x10000
	StatusOpRDMAWrite       Status = 0x20000
	StatusOpRemoteRDMAWrite Status = 0x30000
	StatusOpRDMARead        Status = 0x40000
)

// Done reports whether the descriptor has been completed.
func (s Status) Done() bool { return s&StatusDone != 0 }

// Failed reports whether any error bit is set.
func (s Status) Failed() bool { return s&StatusErrorMask != 0 }

var statusNames = []struct {
	bit  Status
	name string
}{
	{StatusDone, "done"},
	{StatusFormatError, "local format error"},
	{StatusProtectionError, "local protection error"},
	{StatusLengthError, "local length error"},
	{StatusPartialPacket, "partial packet"},
	{StatusFlushed, "flushed"},
	{StatusTransportError, "transport error"},
	{StatusRDMAProtection, "RDMA protection error"},
	{StatusRemoteDescriptor, "remote descriptor error"},
	{StatusImmediate, "immediate data"},
}

// String names the bits of s, as in "done, local length error".
func (s Status) String() string {
	var parts []string
	if !s.Done() {
		parts = append(parts, "not done")
	}
	for _, n := range statusNames {
		if s&n.bit != 0 {
			parts = append(parts, n.name)
		}
	}
	if r := s & StatusReserved; r != 0 {
		parts = append(parts, fmt.Sprintf("reserved %#x", uint32(r)))
	}
	return strings.Join(parts, ", ")
}
