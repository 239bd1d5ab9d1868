package wire

import (
	"net/netip"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// RenewKeys has the keys of a wire renewed as l says.
func (o *UDPOptions) RenewKeys(l sealed.Limits) { o.renewal = l }

// Bounds of a table of stations.
const (
	MaxStations = maxStations
	StationLife = stationLife
)

// Stations is the table of a UDP wire.
type Stations struct{ s stations }

// Hear reports whether a frame of a station is taken from an address.
func (s *Stations) Hear(mac datasheet.MAC, from netip.AddrPort, now time.Time, trusted bool) bool {
	there, _ := s.s.hear(mac, from, now, trusted)
	return there
}

// Find returns the address of a station.
func (s *Stations) Find(mac datasheet.MAC) (netip.AddrPort, bool) { return s.s.find(mac) }
