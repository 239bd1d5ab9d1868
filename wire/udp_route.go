package wire

import (
	"net/netip"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// target is where a datagram goes. Link is nil on a wire without a key.
type target struct {
	address netip.AddrPort
	link    *sealed.Link
}

// flow has the parts of a frame that say where it goes: both stations, both endpoints and the
// key.
type flow struct {
	stations [12]byte
	ends     [12]byte
}

func flowOf(frame []byte) (f flow) {
	f.stations = [12]byte(frame)
	if len(frame) >= datasheet.HeaderSize {
		f.ends = [12]byte(frame[20:])
	}
	return f
}

// route is where the frames of a flow go, as of a version of what the wire knows.
type route struct {
	flow    flow
	to      target
	way     way
	version uint64
}

// way is a frame's way to its station.
type way int

const (
	nowhere    way = iota
	everywhere     // to all peers
	direct         // to one address
)

// towards returns the target at an address.
func (u *UDP) towards(a netip.AddrPort) target {
	if u.tunnel == nil {
		return target{address: a}
	}
	return target{a, u.tunnel.Link(a)}
}

// station returns the address of our own station, as our engine's frames have it;
// zero before the first of them.
func (u *UDP) station() (mac datasheet.MAC) {
	if m := u.own.Load(); m != nil {
		mac = *m
	}
	return mac
}

// routeOf says where a frame of our engine goes.
func (u *UDP) routeOf(frame []byte) (target, way) {
	if len(frame) < ethernetHeader {
		return target{}, everywhere
	}
	typ := frameType(frame)
	f := flowOf(frame)
	if !setsUp(typ) && u.last.flow == f && u.last.version == u.version.Load() {
		return u.last.to, u.last.way
	}
	// The version is older than what is found, if anything.
	u.last.flow, u.last.version = f, u.version.Load()
	to, w := u.find(frame, typ)
	u.last.way, u.last.to = w, target{}
	if w == direct {
		u.last.to = u.towards(to)
	}
	return u.last.to, u.last.way
}

// frameType returns the type of a frame that has one of our headers, zero for
// others.
func frameType(frame []byte) datasheet.FrameType {
	if len(frame) < datasheet.HeaderSize || [2]byte(frame[12:]) != datasheet.EtherType || frame[14] != datasheet.WireVersion {
		return 0
	}
	return datasheet.FrameType(frame[15])
}

// setsUp reports whether frames of a type have a key in their body.
func setsUp(t datasheet.FrameType) bool {
	return t == datasheet.FrameConnectRequest || t == datasheet.FrameConnectAccept
}

// find looks up where a frame goes, and takes note of the keys in those that set
// connections up. A frame with a key that its receiver drew goes nowhere but to
// where that key came from.
func (u *UDP) find(frame []byte, typ datasheet.FrameType) (netip.AddrPort, way) {
	mac := datasheet.MAC(frame)
	u.mu.Lock()
	defer u.mu.Unlock()
	if [2]byte(frame[12:]) == datasheet.EtherType {
		if source := datasheet.MAC(frame[6:]); source != u.station() {
			u.own.Store(&source)
		}
	}
	h := datasheet.HeaderAt(frame)
	if setsUp(typ) && !sound(h, frame) {
		typ = 0 // it was damaged on purpose, and its key with it
	}
	if typ != 0 {
		to := far{mac, h.DestinationEndpoint, h.Key}
		var address netip.AddrPort
		var ok bool
		switch typ {
		case datasheet.FrameConnectRequest:
			u.connections.requesting(h.SourceEndpoint, bodyKey(frame))
			return u.findStation(mac, true)
		case datasheet.FrameConnectAccept:
			address, ok = u.connections.accepting(h.SourceEndpoint, bodyKey(frame), to)
		case datasheet.FrameConnectReject:
			address, ok = u.connections.requests[to]
		default:
			address, ok = u.connections.find(h.SourceEndpoint, to)
		}
		switch {
		case ok:
			return address, direct
		case typ != datasheet.FrameDisconnect:
			return address, nowhere
		}
	}
	return u.findStation(mac, typ == 0)
}

// findStation looks up the address of a station. Frames for all, and for a
// station of which we do not know where it is, go to all peers; so do those for one
// that an unknown sender claims to be, if there are peers.
func (u *UDP) findStation(mac datasheet.MAC, use bool) (netip.AddrPort, way) {
	st := u.stations.known[mac]
	if mac.IsMulticast() || st == nil || !st.proven && len(u.peers) > 0 && !slices.Contains(u.peers, st.address) {
		return netip.AddrPort{}, everywhere
	}
	st.used = st.used || use
	return st.address, direct
}
