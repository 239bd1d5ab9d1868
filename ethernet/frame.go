package ethernet

import "github.com/trapeze-nic/trapeze/internal/mac"

// Sizes in bytes (IEEE 802.3, 3.2; 802.1Q, 9.3). Frames have neither preamble nor frame
// check sequence here: the device appends, checks and removes it.
const (
	HeaderSize = 14 // two addresses and the EtherType
	TagSize    = 4  // a VLAN tag
	CRCSize    = 4  // the frame check sequence, on the wire only
	// MinFrame is the shortest frame on the wire without its CRC. Shorter ones, down to
	// HeaderSize, are padded by the device when they are sent.
	MinFrame = 60
)

// Frame says where a frame is and what is known about it. It is a value: its holder
// has the buffer, until it is passed to Send or Free.
type Frame struct {
	// Buffer of the pool, counted from 0.
	Buffer uint32
	// Offset of the first byte from the start of the buffer, and Length, in bytes.
	Offset, Length uint16
	// Hash of the flow (Toeplitz, by the addresses and ports), if Flags has Hashed.
	Hash uint32
	// VLAN is the tag control information (802.1Q, 9.6: priority 3 bits, drop eligible
	// 1, identifier 12), if Flags has VLANTagged.
	VLAN  uint16
	Flags Flags
	// Segment is for sending: the device cuts the frame, which is a TCP segment longer
	// than the MTU allows, into frames with so many bytes of TCP payload, 1 to 65535; 0
	// for an ordinary frame. It needs OffloadTSO, SumTCP, and L2, L3 and L4.
	Segment uint16
	// L2, L3 and L4 are the lengths in bytes of the headers of a frame that is sent with
	// SumIPv4, SumTCP or SumUDP: Ethernet with tags in the frame, IP with options or
	// extensions, TCP with options (for Segment only).
	L2, L3, L4 uint8
}

// Flags of a frame. Those that tell something of a received frame are ignored when it
// is sent, so that a frame can be passed on as it came.
type Flags uint16

const (
	// VLANTagged: a tag was taken out of a received frame and is in VLAN, or is put in
	// when the frame is sent. Both need OffloadVLAN, so that ports between which frames
	// are passed on have it both or neither; a virtual function may receive such frames
	// without.
	VLANTagged Flags = 1 << iota
	// Hashed: Hash was computed (OffloadHash).
	Hashed
	// Verdicts on the checksums of a received frame (OffloadReceiveSum); neither of a
	// pair: the device has not looked.
	IPSumGood
	IPSumBad
	L4SumGood
	L4SumBad
	// SumIPv4 asks for the checksum of the IPv4 header, SumTCP and SumUDP for that of TCP
	// or UDP, in whose field is the sum of the pseudo header, with the length
	// (OffloadSendSum). IPv6 says that the frame is not IPv4.
	SumIPv4
	SumTCP
	SumUDP
	IPv6

	// requests are the flags that ask something of the device.
	requests = VLANTagged | SumIPv4 | SumTCP | SumUDP
)

// Requests returns the flags that ask the device for something when the frame is sent.
func (f Flags) Requests() Flags { return f & requests }

// MAC is an Ethernet address.
type MAC = mac.MAC

// Offloads are a device's work besides moving frames.
type Offloads uint16

const (
	// OffloadVLAN: tags are taken out of received frames, and put into sent ones that
	// ask for it.
	OffloadVLAN Offloads = 1 << iota
	// OffloadHash: received frames have a hash. With several queues it is on anyway.
	OffloadHash
	// OffloadReceiveSum: checksums of received frames are checked.
	OffloadReceiveSum
	// OffloadSendSum: checksums of sent frames are computed, if they ask for it.
	OffloadSendSum
	// OffloadTSO: long TCP segments are cut, if they ask for it.
	OffloadTSO

	// OffloadAll is each of them.
	OffloadAll = OffloadVLAN | OffloadHash | OffloadReceiveSum | OffloadSendSum | OffloadTSO
)

var offloadNames = [...]string{"VLAN", "hash", "receive checksum", "send checksum", "TSO"}

// String lists the offloads by name.
func (o Offloads) String() string {
	s := ""
	for i, name := range offloadNames {
		if o&(1<<i) != 0 {
			if s != "" {
				s += ", "
			}
			s += name
		}
	}
	if s == "" {
		return "none"
	}
	return s
}
