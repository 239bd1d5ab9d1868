package wire

import (
	"net/netip"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	// maxGrants bounds the connect requests whose sender's address is remembered
	// until they are answered. Clients repeat a request every 20 ms (SPEC.md 8.3),
	// so one that has made place for others comes again.
	maxGrants = 1024
	// maxOffers is the number of servers that may accept one broadcast request.
	maxOffers = 8
	// maxConnections is more endpoints than a device has.
	maxConnections = 1 << 16
)

// far is the other end of a connection as the header of a frame to it has it. The
// key was drawn at random by that end, and only who has seen its frames knows it.
type far struct {
	mac      datasheet.MAC
	endpoint uint32
	key      uint32
}

// grant says that frames for an end of a connection go to an address: its connect
// request or accept, which has its key, came from there.
type grant struct {
	to      far
	address netip.AddrPort
}

// connection is the wire's knowledge of an endpoint of ours. Both keys are taken
// from the frames that set the connection up.
type connection struct {
	key uint32 // ours: the peer's frames carry it
	grant
	// offers are accepts of a request of ours that the engine has not answered.
	offers []grant
}

// connections says where the frames of connections go. A connection stays at the
// address from which its peer's key came, whatever others send.
type connections struct {
	byEndpoint map[uint32]*connection // ours, which only frames of our engine add
	requests   map[far]netip.AddrPort
	order      []far // ring of requests, oldest at next once it is full
	next       int
}

// sound reports whether a frame is one of ours and its checksum holds.
func sound(h *datasheet.Header, frame []byte) bool {
	n := datasheet.HeaderSize + int(h.Length)
	return h.Version == datasheet.WireVersion && h.Flags&datasheet.FrameChecksum != 0 && n <= len(frame) &&
		datasheet.FrameChecksumOf(frame[:n]) == h.Checksum
}

// bodyKey returns the key in the body of a connect request or accept, zero if there
// is no such body.
func bodyKey(frame []byte) uint32 {
	if b := datasheet.ConnectBodyAt(frame[datasheet.HeaderSize:]); b != nil {
		return b.Key
	}
	return 0
}

// requested notes where a connect request came from. The first address stays.
func (c *connections) requested(to far, from netip.AddrPort) {
	if _, ok := c.requests[to]; ok {
		return
	}
	if c.requests == nil {
		c.requests = make(map[far]netip.AddrPort)
	}
	if len(c.order) < maxGrants {
		c.order = append(c.order, to)
	} else {
		delete(c.requests, c.order[c.next])
		c.order[c.next] = to
		c.next = (c.next + 1) % maxGrants
	}
	c.requests[to] = from
}

// accepted notes where an accept of a request of ours came from. It reports whether
// the accept carries the key that was in the request.
func (c *connections) accepted(endpoint, key uint32, g grant) bool {
	own := c.byEndpoint[endpoint]
	if own == nil || key == 0 || key != own.key {
		return false
	}
	if own.to == g.to {
		return own.address == g.address
	}
	for _, o := range own.offers {
		if o.to == g.to {
			return o.address == g.address
		}
	}
	if len(own.offers) == maxOffers {
		return false
	}
	own.offers = append(own.offers, g)
	return true
}

// holds returns the connection whose peer alone can have sent a frame with this
// header; nil if there is none.
func (c *connections) holds(h *datasheet.Header) *connection {
	own := c.byEndpoint[h.DestinationEndpoint]
	if own == nil || h.Key == 0 || h.Key != own.key || h.Source != own.to.mac || h.SourceEndpoint != own.to.endpoint {
		return nil
	}
	return own
}

// requesting notes the key of a request that our engine sends.
func (c *connections) requesting(endpoint, key uint32) {
	if own := c.byEndpoint[endpoint]; own == nil || own.key != key {
		c.set(endpoint, &connection{key: key})
	}
}

// accepting notes an accept that our engine sends, and returns where it goes.
func (c *connections) accepting(endpoint, key uint32, to far) (netip.AddrPort, bool) {
	if own := c.byEndpoint[endpoint]; own != nil && own.key == key && own.to == to {
		return own.address, true
	}
	address, ok := c.requests[to]
	if ok {
		c.set(endpoint, &connection{key: key, grant: grant{to, address}})
	}
	return address, ok
}

func (c *connections) set(endpoint uint32, own *connection) {
	if c.byEndpoint == nil {
		c.byEndpoint = make(map[uint32]*connection)
	}
	if _, ok := c.byEndpoint[endpoint]; ok || len(c.byEndpoint) < maxConnections {
		c.byEndpoint[endpoint] = own
	}
}

// find returns where a frame of an endpoint of ours goes.
func (c *connections) find(endpoint uint32, to far) (netip.AddrPort, bool) {
	own := c.byEndpoint[endpoint]
	if own == nil {
		return netip.AddrPort{}, false
	}
	if own.to != to {
		for _, o := range own.offers {
			if o.to == to {
				own.grant, own.offers = o, nil
				return own.address, true
			}
		}
		return netip.AddrPort{}, false
	}
	return own.address, true
}
