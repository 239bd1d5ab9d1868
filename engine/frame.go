package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// link is the wire and this NIC's address on it. It does not change.
type link struct {
	port        Port
	mac         descriptors.MAC
	checksum    bool        // frames need one on this wire
	progressive Progressive // the port, if it is one
	pieces      bool        // frames are published piece by piece
	lender      Lender      // the port, if it is one
	// maxPayload is what fits a frame, in bytes; oneBurst is the largest that is
	// gathered at once.
	maxPayload, oneBurst uint32
}

func newLink(port Port, mac descriptors.MAC, burst int) link {
	l := link{port: port, mac: mac, checksum: port.Checksum(), maxPayload: uint32(port.MTU() - descriptors.HeaderSize)}
	l.progressive, _ = port.(Progressive)
	l.lender, _ = port.(Lender)
	// The checksum stands in the header, so nothing can go before the whole.
	l.pieces = l.progressive != nil && !l.checksum
	if l.oneBurst = l.maxPayload; l.pieces {
		l.oneBurst = uint32(burst)
	}
	return l
}

// sign fills in what is the same in all frames of this NIC.
func (l *link) sign(h *descriptors.Header) {
	h.Source, h.EtherType, h.Version = l.mac, descriptors.EtherType, descriptors.WireVersion
	if l.checksum {
		h.Flags |= descriptors.FrameChecksum
	}
}

// revoke takes back what was lent to the peer in frames.
func (l *link) revoke() {
	if l.lender != nil {
		l.lender.Revoke()
	}
}

// wellFormed checks what a header says of itself, in a frame of n bytes that
// carries its payload.
func wellFormed(h *descriptors.Header, n int) bool {
	return ours(h, descriptors.FrameFlagsReserved|descriptors.FrameReference) && int(h.Length) <= n-descriptors.HeaderSize
}

// ours checks what is the same in all headers; zero are flags that are not set.
func ours(h *descriptors.Header, zero descriptors.FrameFlags) bool {
	return h.EtherType == descriptors.EtherType && h.Version == descriptors.WireVersion &&
		h.Flags&zero == 0 && !h.Source.IsMulticast()
}

// forAnybody says whether a frame may be broadcast: connect requests and their
// withdrawal, whose sender does not know who will answer.
func forAnybody(h *descriptors.Header) bool {
	return h.Type == descriptors.FrameConnectRequest ||
		h.Type == descriptors.FrameDisconnect && h.DestinationEndpoint == 0
}

// isRaw says of a frame that it is an Ethernet frame of another protocol than ours.
func isRaw(frame []byte) bool {
	const at = descriptors.EthernetHeaderSize - len(descriptors.EtherType)
	return len(frame) >= descriptors.EthernetHeaderSize && [2]byte(frame[at:]) != descriptors.EtherType
}

// framesIn is the number of frames of a size that the rest of a message makes.
func framesIn(rest, size uint32) int {
	if rest == 0 {
		return 0
	}
	return int((rest + size - 1) / size)
}
