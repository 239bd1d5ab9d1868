package shm

import "sync/atomic"

// Stats says what has happened to a port.
type Stats struct {
	Sessions      uint64 `json:"sessions" help:"Times that the link came up." unit:"sessions"`
	Refused       uint64 `json:"refused" help:"Connections that could not be set up: other clients, other versions, a second peer." unit:"connections"`
	Violations    uint64 `json:"violations" help:"Peers that broke the rules and were disconnected." unit:"peers"`
	Aborted       uint64 `json:"aborted" help:"Frames that the peer gave up after it had begun them, in sessions that have ended." unit:"frames"`
	Wakes         uint64 `json:"wakes" help:"Times that a sleeping peer was woken." unit:"wakes"`
	Woken         uint64 `json:"woken" help:"Times that the peer woke this end." unit:"wakes"`
	Lent          uint64 `json:"lent" help:"Times that the peer was told where bytes of ours are, retransmissions included." unit:"loans"`
	Borrowed      uint64 `json:"borrowed" help:"Times that the peer told where its own bytes are." unit:"loans"`
	BorrowedBytes uint64 `json:"borrowed_bytes" help:"Bytes that the peer lent." unit:"bytes"`
	Revoked       uint64 `json:"revoked" help:"Frames whose bytes the peer had taken back when they had been read." unit:"frames"`
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
