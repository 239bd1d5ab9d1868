package afxdp

import (
	"fmt"
	"math/bits"
	"os"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// What the kernel wants of a UMEM, in bytes (Linux, net/xdp/xdp_umem.c).
const (
	minChunk = 2048
	// before is the room that it leaves free before a received frame, besides the headroom that it
	// is asked for (XDP_PACKET_HEADROOM).
	before = 256
)

// geometry says how the buffers of a pool are chunks of a UMEM: each buffer's first bytes
// are one.
type geometry struct {
	chunk uint32
	// headroom is the room that the kernel leaves free besides before.
	headroom uint32
	// parts is the number of descriptors that the longest frame takes at most: 1 if each lies in a
	// chunk, else the port is bound with XDP_USE_SG.
	parts int
	// unaligned chunks need not be a power of two long, nor lie in one page. The kernel
	// takes such only if it copies: a device would need pages that follow each other.
	unaligned bool
}

// geometry finds it. It fails with an *ethernet.ConfigError that says which pools can be
// used.
func (o options) geometry(c ethernet.Options) (geometry, error) {
	pool, stride, page := c.Pool.Options(), c.Pool.Stride(), os.Getpagesize()
	aligned := bits.OnesCount(uint(stride)) == 1 && stride <= page
	// A received frame begins Headroom bytes behind a multiple of 64, as everywhere, and
	// has as many before it at least.
	g := geometry{chunk: uint32(min(stride, page)), headroom: uint32(pool.Headroom % 64), parts: 1}
	if pool.Headroom > before {
		g.headroom = uint32(pool.Headroom - before)
	}
	room := int(g.chunk) - before - int(g.headroom)
	if c.MaxFrame() > room {
		// What arrives in several chunks is gathered in the buffer of the first.
		room = stride - before - int(g.headroom)
		aligned = stride%page == 0
		g.parts = (c.MaxFrame()-1)/int(g.chunk) + 2 // a part may be cut at each end
	}
	g.unaligned = !aligned
	switch {
	case stride < minChunk:
		return g, &ethernet.ConfigError{Field: "PoolOptions.Size", Value: pool.Size,
			Want: fmt.Sprintf("at least %d: the kernel takes buffers of %d bytes or more, headroom included", minChunk-pool.Headroom, minChunk)}
	case !aligned && o.Copy == zero:
		return g, &ethernet.ConfigError{Field: "PoolOptions.Size", Value: pool.Size,
			Want: fmt.Sprintf("%d or %d: for zero copy buffers are %d or %d bytes, headroom included, or pages for longer frames",
				minChunk-pool.Headroom, page-pool.Headroom, minChunk, page)}
	case c.MaxFrame() > room:
		return g, &ethernet.ConfigError{Field: "Options.MTU", Value: c.MTU,
			Want: fmt.Sprintf("at most %d: the kernel leaves %d bytes of a buffer of %d free before a frame",
				room-ethernet.HeaderSize-ethernet.TagSize, before+g.headroom, stride)}
	}
	return g, nil
}
