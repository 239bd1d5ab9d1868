package netmem

import (
	"sync"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// storage holds the pages that a server lends, with their versions. Requests have been
// checked: the page is lent, and the part lies within it.
type storage interface {
	// fetch lends the part of a page that q names until the loan is returned, and fills
	// in r.
	fetch(q *protocol.Request, r *protocol.Reply) *loan
	// write makes from, one page, the page, and fills in r.
	write(q *protocol.Request, r *protocol.Reply, from []byte)
	// stampsOf fills in the stamps of the pages from first on, which are lent.
	stampsOf(first uint64, into []protocol.Stamp)
	// load returns what was saved last; the zero value if nothing was.
	load() (membership, error)
	// save keeps the record of the pool, and what the server is in it. What is lent from a file
	// finds them after a restart.
	save(m membership) error
	// window says where clients that can read the server's memory find pages; nil: nowhere.
	window() *protocol.Window
	// withhold has them find none, or find them again.
	withhold(bool)
	// stored returns the bytes of pages that there are.
	stored() uint64
	close() error
}

// loan is a frame that the NIC sends from. It is not written to until it is returned.
type loan struct {
	frame   ring.Frame
	place   uint32 // of the frame, in the storage
	owner   interface{ returned(place uint32) }
	session *session
	done    func() // returns it: give, bound once
}

var loans sync.Pool

// lend makes a loan.
func lend(owner interface{ returned(uint32) }, place uint32, f ring.Frame) *loan {
	l, _ := loans.Get().(*loan)
	if l == nil {
		l = new(loan)
		l.done = l.give
	}
	l.owner, l.place, l.frame = owner, place, f
	return l
}

// give returns the loan, once.
func (l *loan) give() {
	l.owner.returned(l.place)
	if l.session != nil {
		l.session.taken.Add(1)
		l.session.lent.Add(-1)
	}
	l.owner, l.session, l.frame = nil, nil, ring.Frame{}
	loans.Put(l)
}
