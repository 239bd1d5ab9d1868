package wire

import (
	"net/netip"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	// ethernetHeader is the size in bytes of two addresses and a type.
	ethernetHeader = datasheet.EthernetHeaderSize
	// maxStations bounds what strangers can make us remember. A small switch has
	// room for as many.
	maxStations = 1024
	// A station that is not heard keeps its address for stationLife, where any host can claim to be it.
	stationLife = time.Minute
)

// stations says at which UDP address a station is.
type stations struct {
	mu    sync.Mutex
	known map[datasheet.MAC]station
	swept time.Time // when those that are not heard were forgotten last
}

type station struct {
	at    netip.AddrPort
	heard time.Time
}

// hear notes a frame of a station, and reports whether the station is at that address, and was at another before.
// It is where its last frame came from, if the sender is trusted.
// Others keep the address that a station had first, for as long as it is heard there.
func (s *stations) hear(mac datasheet.MAC, from netip.AddrPort, now time.Time, trusted bool) (there, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.known[mac]
	moved = ok && was.at != from
	if moved && !trusted && now.Sub(was.heard) < stationLife || !ok && !s.room(now) {
		return false, false
	}
	if s.known == nil {
		s.known = map[datasheet.MAC]station{}
	}
	s.known[mac] = station{from, now}
	return true, moved
}

// room reports whether there is room for another station. If not it forgets those that are not heard, at most
// once a second.
func (s *stations) room(now time.Time) bool {
	if len(s.known) >= maxStations && now.Sub(s.swept) > time.Second {
		s.swept = now
		for mac, st := range s.known {
			if now.Sub(st.heard) >= stationLife {
				delete(s.known, mac)
			}
		}
	}
	return len(s.known) < maxStations
}

// find returns the address of a station, if it is known.
func (s *stations) find(mac datasheet.MAC) (netip.AddrPort, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.known[mac]
	return st.at, ok
}
