package wire

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// ethernetHeader is the size in bytes of two addresses and a type.
const ethernetHeader = 14

// maxStations bounds what strangers can make us remember. A small switch has
// room for as many.
const maxStations = 1024

// stations says at which UDP address a station was heard last. When it is full
// the one that was learned first makes place.
type stations struct {
	// version changes with each change, so that a route can be kept.
	version atomic.Uint64

	mu        sync.Mutex
	addresses map[descriptors.MAC]netip.AddrPort
	order     []descriptors.MAC // ring, oldest at next once it is full
	next      int
	// The last one learned: most frames come from the same as the one before.
	mac  descriptors.MAC
	from netip.AddrPort
}

// route is where frames for a station go, as of a version.
type route struct {
	mac     descriptors.MAC
	address netip.AddrPort
	known   bool
	version uint64
}

// learn is called by one goroutine.
func (s *stations) learn(mac descriptors.MAC, from netip.AddrPort) {
	if s.mac == mac && s.from == from {
		return
	}
	s.mac, s.from = mac, from
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.addresses[mac]
	if ok && known == from {
		return
	}
	if s.addresses == nil {
		s.addresses = make(map[descriptors.MAC]netip.AddrPort)
	}
	if !ok {
		if len(s.order) < maxStations {
			s.order = append(s.order, mac)
		} else {
			delete(s.addresses, s.order[s.next])
			s.order[s.next] = mac
			s.next = (s.next + 1) % maxStations
		}
	}
	s.addresses[mac] = from
	s.version.Add(1)
}

func (s *stations) find(mac descriptors.MAC) route {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, ok := s.addresses[mac]
	return route{mac: mac, address: address, known: ok, version: s.version.Load()}
}
