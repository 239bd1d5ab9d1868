package netmem

import (
	"math/bits"
	"sync"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// mostHoldings is of how many pages a directory knows the hosts. Of others they are forgotten: a page
// then comes from the server.
const mostHoldings = 1 << 20

// directory says which clients of a cooperative cache have which pages of a server, as far as it was
// told. What it says may be wrong; the digest of a page never is, as the server computes it itself.
type directory struct {
	mu    sync.Mutex
	pages map[uint64]*holding
}

// holding is a version of a page, and which hosts have it.
type holding struct {
	stamp  protocol.Stamp
	digest protocol.Digest
	hosts  uint16 // a bit each
	// global: one host has it, for others. It gives the page away to who asks for it.
	global bool
}

// bitOf is the bit of a host; none has -1.
func bitOf(host int) uint16 {
	if host < 0 {
		return 0
	}
	return 1 << host
}

// find says which of some hosts has a version of a page, and what its digest is; -1 if none has. Who
// asks has the page from then on.
func (d *directory) find(page uint64, s protocol.Stamp, asks int, among uint16) protocol.Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.pages[page]
	if h == nil || !h.stamp.Same(s) {
		return protocol.Found{Host: -1}
	}
	if !h.global { // of what it has itself, the one that asks has lost it
		among &^= bitOf(asks)
	}
	found := protocol.Found{Digest: h.digest, Host: -1}
	if from := h.hosts & among; from != 0 {
		found.Host = int32(bits.TrailingZeros16(from))
		if h.global {
			h.global, h.hosts = false, 0
		}
		h.hosts |= bitOf(asks)
	}
	return found
}

// note notes that a host has a version of a page, which the server has just sent it or got from it.
func (d *directory) note(page uint64, s protocol.Stamp, bytes []byte, host int) {
	d.mu.Lock()
	h := d.pages[page]
	known := h != nil && h.stamp.Same(s)
	d.mu.Unlock()
	var digest protocol.Digest
	if !known {
		digest = protocol.DigestOf(bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch h = d.pages[page]; {
	case h != nil && h.stamp.Same(s):
		h.hosts, h.global = h.hosts|bitOf(host), h.global && h.hosts == bitOf(host)
	case h != nil && h.stamp.Version > s.Version || known: // it was written again meanwhile
	default:
		if h == nil && len(d.pages) >= mostHoldings {
			for other := range d.pages {
				delete(d.pages, other)
				break
			}
		}
		d.pages[page] = &holding{stamp: s, digest: digest, hosts: bitOf(host)}
	}
}

// move notes that a version of a page goes from one host to another. If other hosts have it, too, it
// goes to none, and held is true. It reports false for a version that the directory does not know.
func (d *directory) move(page uint64, s protocol.Stamp, from, to int) (held, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.pages[page]
	if h == nil || !h.stamp.Same(s) {
		return false, false
	}
	if h.hosts &^= bitOf(from); h.hosts != 0 {
		return true, true
	}
	h.hosts, h.global = bitOf(to), to >= 0
	return false, true
}
