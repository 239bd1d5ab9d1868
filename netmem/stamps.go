package netmem

import "github.com/trapeze-nic/trapeze/internal/netmem/protocol"

// stamps are the versions of the pages that a server lends. Whoever stores the pages holds
// his lock when he calls them, so that page and stamp change together.
type stamps struct {
	// base is the version of pages that nobody has written.
	base  uint64
	pages []stamp
}

// stamp is the version of a page, zero if nobody has written it in this incarnation, and
// the client that has.
type stamp struct{ version, client uint64 }

// of fills in what a reply says about a page.
func (s *stamps) of(page uint64, r *protocol.Reply) {
	p := s.pages[page]
	if r.Version, r.Client = p.version, p.client; p.version == 0 {
		r.Version, r.Flags = s.base, protocol.Unwritten
	}
}

// next is the version that a page gets by a write, if its condition holds.
func (s *stamps) next(q *protocol.Request) (uint64, protocol.Result) {
	now := s.pages[q.Page].version
	if now == 0 {
		now = s.base
	}
	switch {
	case q.Condition == protocol.Always:
		return max(now+1, q.Next), protocol.OK
	case q.Condition == protocol.IfOlder && now >= q.Next, q.Condition == protocol.IfExpected && now != q.Expected:
		return 0, protocol.VersionConflict
	}
	return q.Next, protocol.OK
}

// checkWrite says what is wrong with a write whatever the page holds.
func checkWrite(q *protocol.Request, page, payload int) protocol.Result {
	switch {
	case q.Condition > protocol.Always:
		return protocol.BadOperation
	case int(q.Length) != page || payload != page, q.Condition == protocol.IfExpected && q.Next <= q.Expected,
		q.Condition != protocol.Always && q.Next == 0:
		return protocol.BadLength
	}
	return protocol.OK
}
