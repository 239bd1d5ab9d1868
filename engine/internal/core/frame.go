package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// link is the wire and this NIC's address on it. It does not change.
type link struct {
	Port        Port
	MAC         datasheet.MAC
	Checksum    bool        // frames need one on this wire
	progressive Progressive // the port, if it is one
	pieces      bool        // frames are published piece by piece
	Lender      Lender      // the port, if it is one
	paced       Paced       // the port, if it is one
	Lossless    Lossless    // the port, if it is one
	Peers       Peers       // the port, if it is one
	Shorts      Shorts      // the port, if it is one of both
	mtu         uint32      // of the port
	// MaxPayload is the room of a frame, in bytes; oneBurst is the largest that is
	// gathered at once.
	MaxPayload, OneBurst uint32
	// Timed says that transfers take their time, by the wire or by the bus. Frames are acknowledged then on
	// wires that lose nothing too: they are taken off the wire before they are where they belong.
	Timed bool
	// departs are the events of a frame that is given to the wire.
	departs events
}

func newLink(port Port, mac datasheet.MAC, p Pipeline) link {
	l := link{Port: port, MAC: mac, Checksum: port.Checksum(), mtu: uint32(port.MTU()), departs: Unflushed}
	l.MaxPayload = l.mtu - datasheet.HeaderSize
	l.progressive, _ = port.(Progressive)
	if l.paced, _ = port.(Paced); l.paced != nil {
		l.departs |= Leaving
	}
	l.Timed = l.paced != nil || !p.bus().Instant()
	l.Peers, _ = port.(Peers)
	if !l.Timed {
		l.Lender, _ = port.(Lender)
	}
	if !l.Checksum && !l.Timed {
		l.Lossless, _ = port.(Lossless)
		l.Shorts, _ = port.(Shorts)
	}
	// The checksum stands in the header, so nothing can go before all of the payload.
	l.pieces = l.progressive != nil && !l.Checksum
	if l.OneBurst = l.MaxPayload; l.pieces {
		l.OneBurst = uint32(p.Burst)
	}
	return l
}

// WayTo is the wire to a station if it loses nothing, else nil.
func (l *link) WayTo(station datasheet.MAC) Lossless {
	if l.Peers == nil || l.Checksum || l.Timed {
		return l.Lossless
	}
	w, _ := l.Peers.Peer(station)
	return w
}

// Wire is the number of the wire to a station if it loses nothing, else zero.
func (l *link) Wire(station datasheet.MAC) uint32 {
	if w := l.WayTo(station); w != nil {
		return w.Wire()
	}
	return 0
}

// sign fills in what is the same in all frames of this NIC.
func (l *link) sign(h *datasheet.Header) {
	h.Source, h.EtherType, h.Version = l.MAC, datasheet.EtherType, datasheet.WireVersion
	if l.Checksum {
		h.Flags |= datasheet.FrameChecksum
	}
}

// Revoke takes back what was lent to the peer in frames, on behalf of an endpoint or,
// with zero, of all.
func (l *link) Revoke(owner uint32) {
	if l.Lender != nil {
		l.Lender.Revoke(owner)
	}
}

// wellFormed checks what a header says of itself, in a frame of n bytes: what is the
// same in all of ours, and that the payload is there unless it is lent.
func wellFormed(h *datasheet.Header, n int) bool {
	return h.EtherType == datasheet.EtherType && h.Version == datasheet.WireVersion &&
		h.Flags&datasheet.FrameFlagsReserved == 0 && !h.Source.IsMulticast() &&
		(h.Flags&datasheet.FrameReference != 0 || int(h.Length) <= n-headerSize(h.Type))
}

// headerSize is the size in bytes of the header of a frame with what extends it.
func headerSize(t datasheet.FrameType) int {
	if t.RDMA() {
		return datasheet.HeaderSize + datasheet.ExtensionSize
	}
	return datasheet.HeaderSize
}

// forAnybody says whether a frame may be broadcast: connect requests and their
// withdrawal, whose sender does not know who will answer.
func forAnybody(h *datasheet.Header) bool {
	return h.Type == datasheet.FrameConnectRequest ||
		h.Type == datasheet.FrameDisconnect && h.DestinationEndpoint == 0
}

// IsRaw says of a frame that it is an Ethernet frame of another protocol than ours.
func IsRaw(frame []byte) bool {
	const at = datasheet.EthernetHeaderSize - len(datasheet.EtherType)
	return len(frame) >= datasheet.EthernetHeaderSize && [2]byte(frame[at:]) != datasheet.EtherType
}

// framesIn is the number of frames of a size that the rest of a message makes.
func framesIn(rest, size uint32) int {
	if rest == 0 {
		return 0
	}
	return int((rest + size - 1) / size)
}

// From reports whether a frame is of the endpoint's connection.
func (ep *Endpoint) From(h *datasheet.Header) bool {
	return h.Key == ep.Remote.OurKey && h.Key != 0 && h.SourceEndpoint == ep.Remote.Endpoint && h.Source == ep.Remote.MAC
}

// frameSize is the size in bytes of a frame, without what extends its header.
func frameSize(h *datasheet.Header) uint32 { return datasheet.HeaderSize + uint32(h.Length) }
