package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// path is the knowledge, while a connection is set up, of the way to the peer: which
// frames it carries (SPEC.md 8.3, Path).
type path struct {
	mtu      uint32 // of the peer; zero: it has not said
	came     uint32 // longest of the peer's frames that has come, in bytes
	small    bool   // the next frame is not padded
	server   Remote // of a client: who has accepted
	padded   int    // frames of a client since then
	unproven int    // accepts of the server that prove too little
}

// pathTries is the number of padded frames that get lost, while as many small ones arrive, before
// the path is taken for one that does not carry them: with half of all frames lost at
// random that happens to one connection in 60,000.
const pathTries = 16

// largest is the longest frame that both ends take, in bytes.
func (p *path) largest(mtu uint32) uint32 {
	if p.mtu == 0 {
		return mtu
	}
	return min(mtu, p.mtu)
}

// smallest is the size in bytes of a connect frame that is not padded.
const smallest = datasheet.HeaderSize + datasheet.ConnectBodySize

// carriesAll says of the wire that it is memory, which has one MTU.
func (l *link) carriesAll() bool { return l.Lossless != nil || l.progressive != nil }

// probePath makes a connect frame tell the MTU and what has come, and pads every other
// one: those of a client from the first on, those of a server once such a one has come.
func (c *setups) probePath(s *setup, h *datasheet.Header) {
	h.Extent = c.mtu
	if s.Accepting {
		h.Offset = s.came
	}
	if s.Accepting && s.came <= smallest || !s.Accepting && c.carriesAll() {
		return
	}
	if !s.small {
		h.Length = uint16(s.largest(c.mtu) - datasheet.HeaderSize)
		if s.server != (Remote{}) {
			s.padded++
		}
	}
	s.small = !s.small
}

// pathProven takes what a server's accept says of the path. enough is true once frames of
// the largest size are known to arrive in both directions. If too many are lost that ends the attempt.
func (c *setups) pathProven(ep *Endpoint, from Remote, h *datasheet.Header) (enough bool, v Verdict) {
	s := ep.Setup
	if s.server != (Remote{}) && s.server != from {
		return false, Refused // another server was first
	}
	s.mtu = h.Extent
	if c.carriesAll() {
		return true, Taken
	}
	s.server = from
	s.came = max(s.came, frameSize(h))
	if most := s.largest(c.mtu); s.came >= most && h.Offset >= most {
		return true, Taken
	}
	if s.unproven++; s.unproven >= pathTries && s.padded >= pathTries {
		c.End(ep, datasheet.ResultPathMTU)
		return false, Taken
	}
	s.repeatAt = min(s.repeatAt, s.sent+setupEvery)
	return false, Taken
}
