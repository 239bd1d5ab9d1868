package datasheet

import (
	"hash/crc32"
	"structs"
)

// HeaderSize is the size in bytes of the wire header: a 14-byte Ethernet header
// and 50 bytes of our own. The payload follows, aligned to 64 bytes.
const HeaderSize = 64

// EtherType is IEEE 802's first local experimental one, as it stands on the
// wire, most significant byte first.
var EtherType = [2]byte{0x88, 0xb5}

// WireVersion is the version of the wire header.
const WireVersion = 1

// MinFrame is the smallest frame an Ethernet carries, without its check
// sequence. Our header alone is longer, so frames are never padded by us; a
// receiver accepts padding after the payload.
const MinFrame = 60

// EthernetHeaderSize is the size in bytes of a frame's two addresses and
// EtherType (IEEE 802.3, 3.1.1): what a raw frame has at least.
const EthernetHeaderSize = 14

// MinMTU and MaxMTU bound a wire's frame size in bytes, wire header included.
const (
	MinMTU = HeaderSize + ConnectBodySize
	MaxMTU = HeaderSize + 0xff00
)

// Header starts every frame (SPEC.md 8). Except for the Ethernet header, which
// is in network order, it is little-endian.
type Header struct {
	_           structs.HostLayout
	Destination MAC
	Source      MAC
	EtherType   [2]byte
	Version     uint8
	Type        FrameType
	Flags       FrameFlags
	// Length of the payload in this frame, in bytes; with FrameReference, of what
	// the references stand for.
	Length uint16
	// DestinationEndpoint is zero in a connect request.
	DestinationEndpoint uint32
	SourceEndpoint      uint32
	// Key was chosen at random by the receiver of this frame when the
	// connection was set up; frames with another key are stale or forged.
	Key uint32
	// PSN is the packet sequence number of a data frame.
	PSN uint32
	// Ack is the PSN that the sender of this frame expects next: all before it
	// have arrived.
	Ack uint32
	// Credit is the number of messages that the sender of this frame can take:
	// the first message number that it has no receive descriptor for.
	Credit uint32
	// Message is the message number, counted from zero on each connection.
	Message uint32
	// Extent is the length of the whole message in bytes in data frames. In
	// acknowledgements it is the low half of the selective acknowledgement: bit
	// i set says that PSN Ack+1+i has arrived.
	Extent uint32
	// Offset of this frame's payload in the message, in bytes. In
	// acknowledgements, the high half of the selective acknowledgement.
	Offset uint32
	// Immediate data of the message, if FrameImmediate is set. In reject and
	// disconnect frames, the Result that explains them.
	Immediate uint32
	// Checksum is CRC-32C over header and payload with this field zero, if
	// FrameChecksum is set; zero otherwise.
	Checksum uint32
}

// FrameType says what a frame is for.
type FrameType uint8

const (
	FrameData FrameType = iota + 1
	FrameAck
	// FrameProbe asks for an acknowledgement, to learn whether the peer lives
	// and what credit it gives.
	FrameProbe
	FrameConnectRequest
	FrameConnectAccept
	FrameConnectReject
	FrameDisconnect
	// FrameWrite, FrameReadRequest and FrameReadResponse have an Extension behind the
	// header (SPEC.md 8.13).
	FrameWrite
	FrameReadRequest
	FrameReadResponse
	// FrameCells carries cells of channels (SPEC.md 17.2).
	FrameCells
	// FrameCellStop asks the peer's channels to send nothing, FrameCellStart to go on.
	FrameCellStop
	FrameCellStart
)

var frameNames = [...]string{
	FrameData: "data", FrameAck: "ack", FrameProbe: "probe", FrameConnectRequest: "connect request",
	FrameConnectAccept: "connect accept", FrameConnectReject: "connect reject", FrameDisconnect: "disconnect",
	FrameWrite:       "RDMA write",
	FrameReadRequest: "RDMA read request", FrameReadResponse: "RDMA read response", FrameCells: "cells",
	FrameCellStop: "cell stop", FrameCellStart: "cell start",
}

func (t FrameType) String() string { return nameOf(frameNames[:], t, "frame type") }

// FrameFlags are the flag bits of a wire header.
type FrameFlags uint16

const (
	// FrameFirst and FrameLast mark the first and the last frame of a message.
	FrameFirst FrameFlags = 0x1
	FrameLast  FrameFlags = 0x2
	// FrameImmediate says that Immediate holds the message's immediate data.
	FrameImmediate FrameFlags = 0x4
	// FrameAckRequest asks for an acknowledgement at once.
	FrameAckRequest FrameFlags = 0x8
	// FrameChecksum says that Checksum is valid.
	FrameChecksum FrameFlags = 0x10
	// FrameEcho, in a disconnect frame, says that its sender knows no such
	// connection and that Key repeats the key of the frame it answers.
	FrameEcho FrameFlags = 0x20
	// FrameReference says that references (Reference) stand in place of the
	// payload.
	FrameReference FrameFlags = 0x40
	// FrameFlagsReserved bits are zero.
	FrameFlagsReserved FrameFlags = 0xff80
)

// RDMA reports whether frames of type t have an Extension behind the header.
func (t FrameType) RDMA() bool { return t-FrameWrite <= FrameReadResponse-FrameWrite }

// ExtensionSize is the size in bytes of Extension.
const ExtensionSize = 16

// Extension stands behind the header of RDMA frames (SPEC.md 8.13).
type Extension struct {
	_ structs.HostLayout
	// Address of the first byte of the whole operation in the target's memory, and the
	// Handle of its region; zero in responses.
	Address uint64
	Handle  uint32
	// Request is, in a response, the PSN of the request that it answers, in a reliable
	// write that of its first frame; else zero.
	Request uint32
}

// ConnectOptions are bits that say how the sender of a ConnectBody takes messages.
type ConnectOptions uint16

const (
	// ConnectBreaks says that its VI has EndpointBreaks: messages need no credit.
	ConnectBreaks ConnectOptions = 0x2
	// ConnectOptionsReserved bits are zero.
	ConnectOptionsReserved ConnectOptions = 0xfffd
)

// ConnectBodySize is the size in bytes of ConnectBody.
const ConnectBodySize = 96

// ConnectBody is the payload of connect request and connect accept frames. The
// length of a message and all that both ends must agree on is stated here; a
// direction's first PSN is the Key of the side that sends it.
type ConnectBody struct {
	_ structs.HostLayout
	// Key that the peer shall put into its frames from now on.
	Key         uint32
	MaxTransfer uint32
	Rights      Access
	// TimeoutMS is the time that the client still waits, in milliseconds; zero in
	// an accept.
	TimeoutMS   uint32
	Reliability Reliability
	Kind        Kind
	// Options of the sender. Bits that the receiver does not know mean nothing to it.
	Options ConnectOptions
	// Wire is the number of the sender's wire if that neither loses nor reorders
	// frames, else zero. In an accept it also says that the connection does without
	// acknowledgements.
	Wire uint32
	// Remote is the discriminator asked for; Local the sender's own.
	Remote Discriminator
	Local  Discriminator
}

// ShortBeside stands beside the header of a short frame (SPEC.md 8.12). Bits 15:0 are the tag, those of Key, and
// bits 63:32 the immediate data, if there are any.
type ShortBeside uint64

// Bits of ShortBeside.
const (
	ShortLent      ShortBeside = 1 << 16 // the payload is a table of references
	ShortImmediate ShortBeside = 1 << 17 // there are immediate data
	ShortWrite     ShortBeside = 1 << 18 // it is an RDMA write: the payload begins with an Extension
	shortData                  = 32
)

// WithImmediate is b and immediate data.
func (b ShortBeside) WithImmediate(data uint32) ShortBeside {
	return b | ShortImmediate | ShortBeside(data)<<shortData
}

// Tag is bits 15:0 of Key.
func (b ShortBeside) Tag() uint16 { return uint16(b) }

// Immediate is the immediate data, zero if there are none.
func (b ShortBeside) Immediate() uint32 { return uint32(b >> shortData) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// noChecksum stands for the field in sums. On the stack of a caller it would be allocated for
// each frame, as package crc32 chooses how to sum at run time.
var noChecksum [4]byte

// FrameChecksumOf computes CRC-32C (RFC 3720, B.4) over a whole frame, header
// and payload, as if its Checksum field were zero. The frame must hold at least
// a header.
func FrameChecksumOf(frame []byte) uint32 {
	const at = HeaderSize - 4 // Checksum is the header's last field
	sum := crc32.Update(0, castagnoli, frame[:at])
	sum = crc32.Update(sum, castagnoli, noChecksum[:])
	return crc32.Update(sum, castagnoli, frame[HeaderSize:])
}
