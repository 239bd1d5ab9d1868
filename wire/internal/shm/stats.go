package shm

import "sync/atomic"

// Stats says what has happened to a port.
type Stats struct {
	// Sessions is how often the link came up.
	Sessions uint64
	// Refused is how often a connection could not be set up: other clients at the
	// socket, other versions, a second peer.
	Refused uint64
	// Violations is how often a peer broke the rules and was disconnected.
	Violations uint64
	// Aborted counts frames that the peer gave up after it had begun them, in
	// sessions that have ended.
	Aborted uint64
	// Wakes counts wake-ups of a sleeping peer, Woken those that the peer sent.
	Wakes, Woken uint64
	// Lent is how often the peer was told where bytes of ours are, retransmissions
	// included.
	Lent uint64
	// Borrowed is how often the peer told that of its own, and BorrowedBytes how
	// many bytes that were. Revoked counts frames whose bytes the peer had taken
	// back when they had been read.
	Borrowed, BorrowedBytes, Revoked uint64
}

type counts struct {
	sessions, refused, violations, aborted, wakes, woken atomic.Uint64

	lent, borrowed, borrowedBytes, revoked atomic.Uint64
}

// Stats may be called from any goroutine.
func (p *Port) Stats() Stats {
	c := &p.counts
	return Stats{Sessions: c.sessions.Load(), Refused: c.refused.Load(), Violations: c.violations.Load(),
		Aborted: c.aborted.Load(), Wakes: c.wakes.Load(), Woken: c.woken.Load(),
		Lent: c.lent.Load(), Borrowed: c.borrowed.Load(), BorrowedBytes: c.borrowedBytes.Load(), Revoked: c.revoked.Load()}
}
