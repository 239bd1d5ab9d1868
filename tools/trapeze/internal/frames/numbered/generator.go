package numbered

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// Sizes says how long frames are, in bytes without the check sequence.
type Sizes struct {
	list []int // taken in turn, if there are any
	// least to most, each equally often in an order that looks like chance
	least, most int
}

// imix is the simple mix of Internet traffic: 7 of 64 bytes, 4 of 594 and 1 of 1518, the
// check sequence included.
var imix = []int{60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 60, 590}

// ErrSize: sizes that cannot be read, or cannot be sent.
var ErrSize = errors.New("bad frame size")

// ParseSizes reads a size such as 60, a range such as 60-1514, or imix. It fails with
// ErrSize.
func ParseSizes(s string) (Sizes, error) {
	if s == "imix" {
		return Sizes{list: imix, least: 60, most: 1514}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	least, err := strconv.ParseUint(from, 10, 16)
	most := least
	if err == nil && isRange {
		most, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil || least > most {
		return Sizes{}, fmt.Errorf("%w: %q", ErrSize, s)
	}
	return Sizes{least: int(least), most: int(most)}, nil
}

// Most returns the longest size.
func (s Sizes) Most() int { return s.most }

// at returns the size of a frame by its number.
func (s Sizes) at(number uint32) int {
	if len(s.list) > 0 {
		return s.list[int(number)%len(s.list)]
	}
	span := uint32(s.most - s.least + 1)
	return s.least + int((number*2654435761)>>8%span) // Knuth's multiplicative hash
}

// Options of a Generator.
type Options struct {
	Source, Destination ethernet.MAC
	// VLAN identifier, 1 to 4094; 0 for no tag.
	VLAN uint16
	// From and To make UDP over IPv4 of it, which devices spread over queues; else the
	// frames have EtherType 0x88b6.
	From, To netip.AddrPort
	Sizes    Sizes
	// Stream tells streams apart; choose it at random.
	Stream uint32
}

// Generator makes the frames of a stream. It is used by one goroutine at a time.
type Generator struct {
	header []byte // all before the payload
	ip     int    // where in it the IPv4 header is, 0 for none
	sizes  Sizes
	stream uint32
	next   uint32
}

// NewGenerator makes a generator. It fails with ErrSize for sizes in which a number has no
// room.
func NewGenerator(o Options) (*Generator, error) {
	g := &Generator{sizes: o.Sizes, stream: o.Stream}
	g.header = append(append(g.header, o.Destination[:]...), o.Source[:]...)
	if o.VLAN != 0 {
		g.header = binary.BigEndian.AppendUint16(g.header, typeTag)
		g.header = binary.BigEndian.AppendUint16(g.header, o.VLAN)
	}
	if o.To.IsValid() {
		g.header = binary.BigEndian.AppendUint16(g.header, typeIPv4)
		g.ip = len(g.header)
		// Version and length of the header; identification; do not fragment; TTL; UDP.
		g.header = append(g.header, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0)
		from, to := o.From.Addr().As4(), o.To.Addr().As4()
		g.header = append(append(g.header, from[:]...), to[:]...)
		g.header = binary.BigEndian.AppendUint16(g.header, o.From.Port())
		g.header = binary.BigEndian.AppendUint16(g.header, o.To.Port())
		g.header = append(g.header, 0, 0, 0, 0) // length; no checksum, as the payload has its own
	} else {
		g.header = binary.BigEndian.AppendUint16(g.header, typeNumbered)
	}
	if least := len(g.header) + recordSize; o.Sizes.least < least {
		return nil, fmt.Errorf("%w: %d bytes, a numbered frame takes %d", ErrSize, o.Sizes.least, least)
	}
	return g, nil
}

// Next makes the next frame in b, which is as long as the longest, and returns its length.
func (g *Generator) Next(b []byte) int {
	b = b[:g.sizes.at(g.next)]
	g.fill(b, magicNumber)
	g.next++
	return len(b)
}

// End makes a frame that says how many there were, and returns its length.
func (g *Generator) End(b []byte) int {
	b = b[:g.sizes.least]
	g.fill(b, magicEnd)
	return len(b)
}

func (g *Generator) fill(b []byte, magic uint16) {
	copy(b, g.header)
	if g.ip > 0 {
		ip := b[g.ip:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:], ^inetsum.Of(ip[:20]))
		binary.BigEndian.PutUint16(ip[24:], uint16(len(ip)-20))
	}
	payload := b[len(g.header):]
	clear(payload)
	seal(payload, magic, g.stream, g.next)
}
