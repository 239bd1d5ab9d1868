package wire

import (
	"net/netip"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ethernetHeader is the size in bytes of two addresses and a type.
const ethernetHeader = datasheet.EthernetHeaderSize

// maxStations bounds what strangers can make us remember. A small switch has
// room for as many.
const maxStations = 1024

// station is the wire's knowledge of a station of a UDP wire.
type station struct {
	address netip.AddrPort
	// proven: a frame that carried the key of a connection has come from there.
	// Otherwise one peer said so, and no other had before.
	proven bool
	// used: frames have been sent there.
	used bool
}

// stations says at which UDP address a station is. When it is full, the one that
// was learned first makes place, of those to which nothing has been sent if there
// are any.
type stations struct {
	known map[datasheet.MAC]*station
	order []datasheet.MAC // ring, oldest at next once it is full
	next  int
}

// add makes a station known that was not.
func (s *stations) add(mac datasheet.MAC, st station) {
	if s.known == nil {
		s.known = make(map[datasheet.MAC]*station)
	}
	if len(s.order) < maxStations {
		s.order = append(s.order, mac)
	} else {
		for range s.order {
			if !s.known[s.order[s.next]].used {
				break
			}
			s.next = (s.next + 1) % maxStations
		}
		delete(s.known, s.order[s.next])
		s.order[s.next] = mac
		s.next = (s.next + 1) % maxStations
	}
	s.known[mac] = &st
}
