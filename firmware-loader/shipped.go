package firmware

import (
	"encoding/binary"
	"net/netip"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// The contract between programs and the NIC processor (SPEC.md 14), as far as a [Spec] shows it.
type (
	Hook    = abi.Hook
	Program = abi.Program
	Map     = abi.Map
	MapType = abi.MapType
)

// Hooks, types of maps, and answers of filters.
const (
	PulseTx    = abi.PulseTx
	PulseRx    = abi.PulseRx
	DemuxRx    = abi.DemuxRx
	FilterTx   = abi.FilterTx
	FilterRx   = abi.FilterRx
	MapHash    = abi.MapHash
	MapArray   = abi.MapArray
	FilterDrop = abi.FilterDrop
	FilterPass = abi.FilterPass
)

// ErrNotShipped is wrapped by the error about an image that the project does not ship.
var ErrNotShipped = images.ErrUnknown

// Shipped describes an image that the project ships. internal/images/README.md has a page on
// each.
type Shipped = images.Image

// ShippedImages returns the images that the project ships.
func ShippedImages() []Shipped { return images.Catalogue() }

// ShippedNames returns their names.
func ShippedNames() []string { return images.Names() }

// BuildShipped makes an image that the project ships. It is the same each time, down to the last
// byte, and not signed. Errors wrap ErrNotShipped.
func BuildShipped(name string) (*Spec, error) {
	object, err := images.Object(name)
	if err != nil {
		return nil, err
	}
	return Build(object, Meta{})
}

// SteerQueues is the size of the map "queues" of flow-steer: for the low bits of a flow's hash, the
// 32-bit number of a receive queue. 0, which no queue has, leaves frames to the oldest endpoint.
const SteerQueues = 128

// Rule is a value of the map "rules" of acl.
type Rule struct {
	Action uint32 // FilterDrop or FilterPass
	Hits   uint64 // frames that met the rule; the program counts them
}

// Bytes returns the 16 bytes that the map has, in little-endian order.
func (r Rule) Bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.Action))
	return binary.LittleEndian.AppendUint64(b, r.Hits)
}

// FlowKey returns the key of a flow in the maps of acl and count, 40 bytes: addresses, ports and
// protocol in network order, then zeros. Addresses of IPv4 become ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
// Ports are 0 unless the protocol is TCP or UDP.
func FlowKey(from, to netip.AddrPort, protocol uint8) []byte {
	source, destination := from.Addr().As16(), to.Addr().As16()
	b := append(source[:], destination[:]...)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	return append(b, protocol, 0, 0, 0)
}
