package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// lender is what a wire that lends has beyond others: each end can read the
// other's memory. A region's number is that of the loans that have not been
// revoked, so a frame tells, however often it is copied, whether its loan stands.
type lender struct {
	n     *node
	peer  *lender
	epoch uint32
	// able, if there is one, says what the peer can read.
	able func(b []byte) bool
	// reading, if there is one, is called when something has been borrowed.
	reading func()

	oldest             uint32 // of the regions that are borrowed, while using
	using              bool
	lent, got, revokes int
	void               int // frames that Return called void
}

const firstRegion = 100

// lending is an option that makes a wire's ends lend, in frames of size bytes of
// payload. Those of the world are in ends then.
func lending(size int, ends *[2]*lender) option {
	i := 0
	return func(c *engine.Config, p *port) {
		l := &lender{n: c.Host.(*node), epoch: firstRegion}
		l.n.lender = l
		ends[i] = l
		if i++; i == len(ends) {
			ends[0].peer, ends[1].peer = ends[1], ends[0]
		}
		p.mtu = datasheet.HeaderSize + size
		if q := l.n.parts; q != nil {
			c.Port = struct {
				*parts
				*lender
			}{q, l}
			return
		}
		c.Port = struct {
			*port
			*lender
		}{p, l}
	}
}

// overMemory is an option behind lending and onMemory that lends over the wire in
// memory, which makes nothing while it carries frames.
func overMemory(c *engine.Config, _ *port) {
	c.Port = struct {
		engine.Port
		engine.Progressive
		*lender
	}{c.Port, c.Port.(engine.Progressive), c.Host.(*node).lender}
}

func (l *lender) Lend(b []byte) (id uint32, offset uint64, ok bool) {
	at := offsetOf(b, l.n.mem)
	if at < 0 || at+len(b) > len(l.n.mem) {
		l.n.w.t.Fatalf("%d bytes at %#x are not the host's", len(b), at)
	}
	if l.able != nil && !l.able(b) {
		return 0, 0, false
	}
	l.lent++
	return l.epoch, uint64(at), true
}

// No copies are allowed.
func (l *lender) Table() *datasheet.DirectTable                    { return nil }
func (l *lender) AllowDirect(bool)                                 {}
func (l *lender) Where([]byte) (id uint32, offset uint64, ok bool) { return 0, 0, false }
func (l *lender) Settle()                                          {}
func (l *lender) Begin(uint32) *datasheet.DirectTable              { return nil }
func (l *lender) Reach(uint32, uint64, uint64, bool) []byte        { return nil }
func (l *lender) End()                                             {}

func (l *lender) Lent(uint32)   {}
func (l *lender) Revoke(uint32) { l.epoch, l.revokes = l.epoch+1, l.revokes+1 }

func (l *lender) Borrow(id uint32, offset, n uint64) []byte {
	mem := l.peer.n.mem
	if id < firstRegion || id > l.peer.epoch || offset > uint64(len(mem)) || n > uint64(len(mem))-offset {
		return nil
	}
	if !l.using || id < l.oldest {
		l.using, l.oldest = true, id
	}
	l.got++
	if l.reading != nil {
		l.reading()
	}
	return mem[offset : offset+n : offset+n]
}

func (l *lender) Return() (valid bool) {
	if !l.using {
		l.n.w.t.Error("nothing is borrowed")
	}
	l.using = false
	if valid = l.oldest == l.peer.epoch; !valid {
		l.void++
	}
	return valid
}

// lentPair is a pair on a wire that lends.
func lentPair(t testing.TB, size int, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, v, p *vi, a, b *lender) {
	t.Helper()
	var ends [2]*lender
	w, v, p = pair(t, change, append(options, lending(size, &ends))...)
	return w, v, p, ends[0], ends[1]
}

// watchData has seen called with each data frame that a node sends.
func (n *node) watchData(seen func(h *datasheet.Header, frame []byte)) {
	n.port.spoil = func(f []byte) [][]byte {
		if isData(f) {
			seen(datasheet.HeaderAt(f), f)
		}
		return [][]byte{f}
	}
}
