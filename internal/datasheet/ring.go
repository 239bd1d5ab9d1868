package datasheet

import "structs"

// RingMessage is the size in bytes of the message of a ring's slot. All of it always
// travels ("control messages" of 128 bytes: the Trapeze papers, CS-1997-20).
const RingMessage = 128

// RingSlotSize is the size in bytes of a slot of a ring.
const RingSlotSize = 192

// RingSlot is one entry of a send or a receive ring in device memory (SPEC.md 15): a
// message, and behind it what makes it a descriptor. From byte 128 on the fields stand where
// those of a control segment and of one data segment would.
//
// The host writes Segments, Control, Reserved, Tag and Length of a send, and Payload, before
// it posts the slot; the device owns the slot from the post until it has written Status,
// which it writes last. Use LoadStatus and StoreStatus for Status: the other side is writing.
type RingSlot struct {
	_       structs.HostLayout
	Message [RingMessage]byte
	_       [12]byte
	// Segments is 1 if a payload, or the memory for one, is attached, else 0.
	Segments uint16
	// Control is OpSend, with ControlImmediate if a send has a Tag.
	Control Control
	// Reserved is zero.
	Reserved uint32
	// Tag of a message: with ControlImmediate in a send, with StatusImmediate in a receive
	// that is done. Its remainder modulo PayloadEntries is the receiver's entry of the
	// payload table.
	Tag uint32
	// Length in bytes of the payload: of a send, as many of those attached as travel; of a
	// receive, written by the device, those that are in place.
	Length uint32
	// Status as in a ControlSegment.
	Status uint32
	// Payload is the memory that is attached.
	Payload DataSegment
	// Sent, of a receive, is written by the device: the bytes of payload that the message
	// had. More than Length says that they were discarded.
	Sent uint32
	// Place, of a receive, is written by the device: where the payload is. Zero is the
	// memory attached, or nowhere, n+1 entry n of the payload table.
	Place uint32
	_     uint64
}

// RingPlaceSize is the size in bytes of an entry of a ring's payload table.
const RingPlaceSize = 24

// RingPlace is one of the PayloadEntries entries of a ring's payload table in device memory
// (SPEC.md 15.4): where the payload of a message with its tag goes. Use Load and Store: the
// other side may be reading or writing.
type RingPlace struct {
	_       structs.HostLayout
	Address uint64
	// Handle is zero in an entry that names nothing.
	Handle uint32
	// Length is the most bytes that may be placed.
	Length uint32
	Tag    uint32
	_      uint32
}
