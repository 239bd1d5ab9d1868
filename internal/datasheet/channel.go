package datasheet

import "structs"

// A channel (SPEC.md 16) is a pair of double pages of host memory, a control page in device
// memory, which its owner reads, and doorbells. The widths of the fields of its two words
// depend on the size of its pages, as in the table of MINI (Minnich, Burns, Hady: "The
// memory-integrated network interface", IEEE Micro 15(1), 1995).

const (
	// MinChannelPageLog2 and MaxChannelPageLog2 bound a channel's pages: 4 to 16 KiB.
	MinChannelPageLog2 = 12
	MaxChannelPageLog2 = 14
	// ChannelWord is the unit of offsets in a double page, in bytes.
	ChannelWord = 8
	// ChannelDepth limits the messages of one priority that a channel has under way. It is
	// the number of doorbell words of that priority too, which the host uses in turn.
	ChannelDepth = 16
	// CellPayload is the payload of a cell, in bytes: six words.
	CellPayload = 48
	// CellSize is the size of Cell in bytes: seven words.
	CellSize = 56
	// ChannelEnds is where the 32-bit words about the last ChannelEndCount PDUs stand in a
	// control page: PDU n, as PDUs of the receive word counts them, at n modulo the count.
	ChannelEnds     = 0x400
	ChannelEndCount = 256
)

// ChannelControl begins a channel's control page. The device writes it and does not read it.
// Transmit and Receive change as wholes; use LoadWord.
type ChannelControl struct {
	_ structs.HostLayout
	// Transmit is a TransmitWord, Receive a ReceiveWord.
	Transmit uint64
	Receive  uint64
	// SendCRC and RecvCRC are the states of AAL5's CRC-32 behind the last cell sent and
	// received; all ones between PDUs.
	SendCRC uint32
	RecvCRC uint32
	// SendStatus is a SendStatus.
	SendStatus uint64
	_          [4]uint64
}

// Cell is a cell on the wire between devices. The header is that of ITU-T I.361, the most
// significant byte first.
type Cell struct {
	_      structs.HostLayout
	Header [4]byte
	// HEC is the check of Header, ITU-T I.432.1, 4.3.2.
	HEC uint8
	// Tag is the low 24 bits of the key of the connection that the cell belongs to, which
	// the receiver drew, the least significant byte first.
	Tag     [3]byte
	Payload [CellPayload]byte
}

// ChannelPage is the size of a channel's pages as an exponent of two, MinChannelPageLog2 to
// MaxChannelPageLog2. It says how wide the fields of a channel's words are.
type ChannelPage uint8

// Valid reports whether channels can have such pages.
func (p ChannelPage) Valid() bool { return p >= MinChannelPageLog2 && p <= MaxChannelPageLog2 }

// Words is the number of 8-byte words of a double page: 1024, 2048 or 4096.
func (p ChannelPage) Words() uint32 { return 1 << p.offsetBits() }

// Bytes is the size of a double page.
func (p ChannelPage) Bytes() uint32 { return 2 << p }

// Channels is the greatest number of channels with such pages: 4096, 2048 or 1024. Their
// numbers are smaller.
func (p ChannelPage) Channels() uint32 { return 1 << (24 - p) }

// offsetBits is the width of offsets in a double page: 10 to 12 bits.
func (p ChannelPage) offsetBits() uint { return uint(p) - 2 }

// VCIBits is the width of the upper bits of a VCI, those that the number of a channel
// does not reach: 4 to 6 bits.
func (p ChannelPage) VCIBits() uint { return uint(p) - 8 }

// pointerBits is the width of the number of a double page: 15 to 13 bits, 256 MiB.
func (p ChannelPage) pointerBits() uint { return 27 - uint(p) }

// Pointer is the number of the double page at an application address among those of 256 MiB.
func (p ChannelPage) Pointer(address uint64) uint16 {
	return uint16(address / uint64(p.Bytes()) & (1<<p.pointerBits() - 1))
}

// TransmitWord is a channel's transmit word, from bit 0 on in the order of its fields.
type TransmitWord struct {
	VCI     uint8  // VCIBits: upper bits of the VCI of its cells
	GFC     uint8  // 4 bits
	Stop    uint16 // offsetBits: where the message that was sent last ends
	Pointer uint16 // pointerBits: number of the double page
	Current uint16 // offsetBits: the next word to be sent; Stop once all are sent
	HEC     uint8  // check of the header of its cells
	LastHEC uint8  // check of the header of the last cell of a PDU
}

// Encode packs the fields for pages of a size: 59, 61 or 63 bits.
func (w TransmitWord) Encode(p ChannelPage) uint64 {
	var f fields
	f.put(uint64(w.VCI), p.VCIBits())
	f.put(uint64(w.GFC), 4)
	f.put(uint64(w.Stop), p.offsetBits())
	f.put(uint64(w.Pointer), p.pointerBits())
	f.put(uint64(w.Current), p.offsetBits())
	f.put(uint64(w.HEC), 8)
	f.put(uint64(w.LastHEC), 8)
	return f.word
}

// DecodeTransmitWord undoes Encode.
func DecodeTransmitWord(word uint64, p ChannelPage) (w TransmitWord) {
	f := fields{word: word}
	w.VCI = uint8(f.get(p.VCIBits()))
	w.GFC = uint8(f.get(4))
	w.Stop = uint16(f.get(p.offsetBits()))
	w.Pointer = uint16(f.get(p.pointerBits()))
	w.Current = uint16(f.get(p.offsetBits()))
	w.HEC = uint8(f.get(8))
	w.LastHEC = uint8(f.get(8))
	return w
}

// ReceiveWord is a channel's receive word, from bit 0 on in the order of its fields.
type ReceiveWord struct {
	PDUs    uint8         // PDUs whose last cell has come, modulo 256
	Status  ChannelStatus // 7 bits
	Drops   uint16        // 10 bits: cells that were dropped, see Drop
	Pointer uint16        // pointerBits: number of the double page
	Current uint16        // offsetBits: where the next word goes
	Stop    uint16        // offsetBits: where nothing more is written
}

// Encode packs the fields for pages of a size: 60, 61 or 62 bits.
func (w ReceiveWord) Encode(p ChannelPage) uint64 {
	var f fields
	f.put(uint64(w.PDUs), 8)
	f.put(uint64(w.Status), 7)
	f.put(uint64(w.Drops), 10)
	f.put(uint64(w.Pointer), p.pointerBits())
	f.put(uint64(w.Current), p.offsetBits())
	f.put(uint64(w.Stop), p.offsetBits())
	return f.word
}

// DecodeReceiveWord undoes Encode.
func DecodeReceiveWord(word uint64, p ChannelPage) (w ReceiveWord) {
	f := fields{word: word}
	w.PDUs = uint8(f.get(8))
	w.Status = ChannelStatus(f.get(7))
	w.Drops = uint16(f.get(10))
	w.Pointer = uint16(f.get(p.pointerBits()))
	w.Current = uint16(f.get(p.offsetBits()))
	w.Stop = uint16(f.get(p.offsetBits()))
	return w
}

// ChannelDropsMany is the top bit of the count of dropped cells, which sticks.
const ChannelDropsMany = 0x200

// Drop counts a dropped cell: the low 9 bits count modulo 512, and the top bit stays once
// they have run over.
func (w *ReceiveWord) Drop() {
	w.Drops = w.Drops&ChannelDropsMany | (w.Drops&(ChannelDropsMany-1) + 1)
}

// fields packs bit fields into a word, or takes them out of it, from bit 0 on.
type fields struct {
	word uint64
	at   uint
}

func (f *fields) put(v uint64, bits uint) {
	f.word |= v & (1<<bits - 1) << f.at
	f.at += bits
}

func (f *fields) get(bits uint) uint64 {
	v := f.word >> f.at & (1<<bits - 1)
	f.at += bits
	return v
}

// ChannelStatus is the status of a receive word.
type ChannelStatus uint8

const (
	// ChannelSpaced: cells take eight words each, see EndpointSpaced.
	ChannelSpaced ChannelStatus = 0x01
	// ChannelConnected: a peer is at the other end.
	ChannelConnected ChannelStatus = 0x02
	// ChannelCut: since the last receive doorbell words were not written, since Current
	// had reached Stop.
	ChannelCut ChannelStatus = 0x04
	// ChannelBadCRC, ChannelBadLength and ChannelAborted are about the last PDU: its CRC or
	// its length was wrong, or its sender gave it up.
	ChannelBadCRC    ChannelStatus = 0x08
	ChannelBadLength ChannelStatus = 0x10
	ChannelAborted   ChannelStatus = 0x20
	// ChannelUnreachable: since the last receive doorbell cells were dropped, since the
	// double page is not registered any more.
	ChannelUnreachable ChannelStatus = 0x40
)

// ChannelEnd says where a PDU ended, and how.
type ChannelEnd uint32

const (
	// ChannelEndLength is the length that the PDU's trailer states, in bytes.
	ChannelEndLength ChannelEnd = 0x0000ffff
	// ChannelEndOffset is where the next PDU begins: the word behind its CRC and clock.
	ChannelEndOffset ChannelEnd = 0x0fff0000
	// ChannelEndBadCRC to ChannelEndAborted are as in ChannelStatus. ChannelEndCut: words of
	// it were not written.
	ChannelEndBadCRC    ChannelEnd = 0x10000000
	ChannelEndBadLength ChannelEnd = 0x20000000
	ChannelEndAborted   ChannelEnd = 0x40000000
	ChannelEndCut       ChannelEnd = 0x80000000
)

// Length is the length in bytes that the PDU's trailer states, without padding.
func (e ChannelEnd) Length() int { return int(e & ChannelEndLength) }

// Offset is where the next PDU begins, in words.
func (e ChannelEnd) Offset() uint32 { return uint32(e&ChannelEndOffset) >> 16 }

// Whole reports whether the PDU is undamaged and all of it is there.
func (e ChannelEnd) Whole() bool {
	return e&(ChannelEndBadCRC|ChannelEndBadLength|ChannelEndAborted|ChannelEndCut) == 0
}

// Words of a channel's doorbells.
const (
	// ChannelStart is where a message starts in the double page, in words; of a receive
	// doorbell, where the next cell goes.
	ChannelStart uint32 = 0x00000fff
	// ChannelStop is the word behind the message's last; of a receive doorbell, where
	// nothing more is written. Shift it by 12.
	ChannelStop uint32 = 0x00fff000
	// ChannelKeep, of a receive doorbell: the next cell goes where it would go without it.
	ChannelKeep uint32 = 0x40000000
	// ChannelRung is set in every word, so that a device that finds doorbells by looking at
	// memory can tell a new one from none.
	ChannelRung uint32 = 0x80000000
	// ChannelReserved bits are zero.
	ChannelReserved uint32 = 0x3f000000
)

// ChannelBell is a word that has a message sent from start up to stop, in 8-byte words of
// the double page, or a receive go from start up to stop.
func ChannelBell(start, stop uint32) uint32 {
	return ChannelRung | start&ChannelStart | stop<<12&ChannelStop
}

// ChannelSpan is the span that ChannelBell was given.
func ChannelSpan(word uint32) (start, stop uint32) {
	return word & ChannelStart, word & ChannelStop >> 12
}

// ChannelResult says what became of a store to a send doorbell.
type ChannelResult uint8

const (
	// ChannelTaken: the message will be sent.
	ChannelTaken ChannelResult = iota
	// ChannelFull: as many messages of this priority as may be are under way.
	ChannelFull
	// ChannelBadOffsets: there is no such place in the double page, start and stop are the
	// same, or reserved bits are set.
	ChannelBadOffsets
	// ChannelNotConnected: no peer is at the other end.
	ChannelNotConnected
	// ChannelUnreadable: it was taken, but could not be sent to its end, since the double
	// page is not registered any more.
	ChannelUnreadable
)

var channelResults = [...]string{
	ChannelTaken: "taken", ChannelFull: "FIFO full", ChannelBadOffsets: "bad offsets",
	ChannelNotConnected: "not connected", ChannelUnreadable: "unreadable",
}

func (r ChannelResult) String() string { return nameOf(channelResults[:], r, "result") }

// ChannelPriority chooses a FIFO.
type ChannelPriority uint8

const (
	PriorityHigh ChannelPriority = iota
	PriorityLow
	ChannelPriorities // their number
)

// SendStatus says what became of the stores to a channel's send doorbells, by priority.
// Counts are modulo 256.
type SendStatus struct {
	// Stores that the device has seen.
	Stores [ChannelPriorities]uint8
	// Ended messages: sent, or given up. A store that was not taken ends at once.
	Ended [ChannelPriorities]uint8
	// Result of the last store, or of a later end of a message that was taken.
	Result [ChannelPriorities]ChannelResult
}

// Encode packs the fields: six bytes, high priority first of each two, and two of zero.
func (s SendStatus) Encode() uint64 {
	return uint64(s.Stores[0]) | uint64(s.Stores[1])<<8 | uint64(s.Ended[0])<<16 | uint64(s.Ended[1])<<24 |
		uint64(s.Result[0])<<32 | uint64(s.Result[1])<<40
}

// DecodeSendStatus undoes Encode.
func DecodeSendStatus(w uint64) SendStatus {
	return SendStatus{Stores: [2]uint8{uint8(w), uint8(w >> 8)}, Ended: [2]uint8{uint8(w >> 16), uint8(w >> 24)},
		Result: [2]ChannelResult{ChannelResult(w >> 32), ChannelResult(w >> 40)}}
}
