package netmem

import (
	"math"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// stamps are the versions of the pages that a server lends. The storage holds its lock
// when it calls them, so that page and stamp change together.
type stamps struct {
	// base is the version of pages that were never written.
	base uint64
	// joins counts how often the server has begun to join a pool, or pages to move; joining: it joins now.
	joins   uint32
	joining bool
	pages   []stamp
}

// stamp is the version of a page and the client that wrote it. The zero stamp is a page
// that was never written.
type stamp struct {
	version, client uint64
	state           uint32 // the bits below; from joinShift on, the join that fresh is about
}

// State of a page. Unwritten pages are those without the bit written, whatever the version.
const (
	written   = 1 << 0
	fresh     = 1 << 1
	joinShift = 2
)

// of is the stamp of a page as clients see it. A page is fresh only in the join in which it was written, so
// that the next join forgets all bits at once.
func (s *stamps) of(page uint64) protocol.Stamp {
	p := s.pages[page]
	seen := protocol.Stamp{Version: p.version, Client: p.client}
	if p.state&written == 0 {
		seen.Version, seen.Flags = s.base, protocol.Unwritten
	}
	if p.state&fresh != 0 && p.state>>joinShift == s.joins<<joinShift>>joinShift { // a state has room for so many bits
		seen.Flags |= protocol.Fresh
	}
	return seen
}

// run fills in what is known about the pages from first on. They are all lent.
func (s *stamps) run(first uint64, into []protocol.Stamp) {
	for i := range into {
		into[i] = s.of(first + uint64(i))
	}
}

// become notes what the server is in its pool. While pages move, none is fresh.
func (s *stamps) become(m *membership) {
	joins := m.State(m.self) == protocol.Joining
	if s.base = m.Base; joins && !s.joining || m.Moving() {
		s.joins++
	}
	s.joining = joins
}

// next is the stamp that a page gets by a write, if its condition holds.
func (s *stamps) next(q *protocol.Request) (stamp, protocol.Result) {
	now := s.of(q.Page)
	next := stamp{version: q.Next, client: q.Client, state: written | fresh | s.joins<<joinShift}
	switch q.Condition {
	case protocol.Always:
		if now.Version >= math.MaxUint64-1 {
			return stamp{}, protocol.VersionLimit
		}
		next.version = max(now.Version+1, q.Next)
	case protocol.IfOlder:
		// Of a server that joins, only what was written since then counts.
		if now.Version >= q.Next && (!s.joining || now.Flags&protocol.Fresh != 0) {
			return stamp{}, protocol.VersionConflict
		}
	case protocol.IfExpected:
		if now.Version != q.Expected {
			return stamp{}, protocol.VersionConflict
		}
	case protocol.Exactly:
		switch {
		case now.Flags&protocol.Fresh == 0:
			next.state = written
		case now.Version >= q.Next:
			return stamp{}, protocol.VersionConflict
		}
	}
	return next, protocol.OK
}

// checkWrite says what is wrong with a write whatever the page holds.
func checkWrite(q *protocol.Request, page, payload int) protocol.Result {
	switch {
	case q.Condition > protocol.Exactly:
		return protocol.BadOperation
	case int(q.Length) != page || payload != page, q.Condition == protocol.IfExpected && q.Next <= q.Expected,
		q.Condition != protocol.Always && q.Next == 0:
		return protocol.BadLength
	case q.Next == math.MaxUint64:
		return protocol.VersionLimit
	}
	return protocol.OK
}
