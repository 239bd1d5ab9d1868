package wire

import (
	"net/netip"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// heard is the sender of the last frame that arrived. Most frames come from the
// same as the one before, and teach nothing.
type heard struct {
	from    netip.AddrPort
	flow    flow
	version uint64
}

// learn notes at which address the sender of a frame is. It returns true if the
// frame was for the wire itself.
func (u *UDP) learn(frame []byte, from netip.AddrPort) bool {
	if [2]byte(frame[12:]) != datasheet.EtherType {
		return false
	}
	typ := frameType(frame)
	switch typ {
	case datasheet.FrameStationQuery, datasheet.FrameStationAnswer:
		h := datasheet.HeaderAt(frame)
		switch {
		case !sound(h, frame):
		case typ == datasheet.FrameStationQuery:
			u.queried(h, from)
		default:
			u.answered(h, from)
		}
		return true
	}
	source := datasheet.MAC(frame[6:])
	if source.IsMulticast() || source == (datasheet.MAC{}) {
		return false
	}
	f, version := flowOf(frame), u.version.Load()
	if !setsUp(typ) && u.heard == (heard{from, f, version}) {
		return false
	}
	asked := false
	for _, q := range u.note(frame, typ, source, from) {
		// A frame shorter than a query is no reason to send one.
		if q.candidate.IsValid() && len(frame) >= datasheet.HeaderSize {
			u.ask(q)
			asked = true
		}
	}
	if !asked {
		u.heard = heard{from, f, version}
	}
	return false
}

// note takes what a frame teaches, and returns what has to be asked: whether its
// connection has moved, and whether its station has.
func (u *UDP) note(frame []byte, typ datasheet.FrameType, source datasheet.MAC, from netip.AddrPort) (asks [2]question) {
	u.mu.Lock()
	defer u.mu.Unlock()
	proven := false
	switch {
	case typ == 0:
	case setsUp(typ):
		h := datasheet.HeaderAt(frame)
		to := far{source, h.SourceEndpoint, bodyKey(frame)}
		if to.key == 0 || !sound(h, frame) {
			break
		}
		if typ == datasheet.FrameConnectRequest {
			u.connections.requested(to, from)
		} else {
			proven = u.connections.accepted(h.DestinationEndpoint, h.Key, grant{to, from})
		}
	default:
		h := datasheet.HeaderAt(frame)
		own := u.connections.holds(h)
		switch {
		case own == nil:
		case own.address == from:
			proven = true
		default:
			asks[0] = question{mac: source, endpoint: h.DestinationEndpoint, to: own.to, candidate: from}
		}
	}
	st := u.stations.known[source]
	switch {
	case st == nil:
		u.stations.add(source, station{address: from, proven: proven})
		u.version.Add(1)
	case st.address == from:
		if proven && !st.proven {
			st.proven = true
			u.version.Add(1)
		}
	case proven && !st.proven:
		*st = station{address: from, proven: true, used: st.used}
		u.version.Add(1)
	default:
		asks[1] = question{mac: source, old: st.address, candidate: from}
	}
	return asks
}
