package sealed

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Tunnel seals and opens the datagrams of one socket. One goroutine owns it; Link
// and the methods of links, and Stats, may be called from any.
type Tunnel struct {
	key      *Key
	limits   Limits
	instance [instanceSize]byte // in its hellos: one that comes back is known
	out      func(datagram []byte, to netip.AddrPort)
	sealer   *Sealer
	nonce    [12]byte

	mu    sync.Mutex // of links, which only the owner changes
	links map[netip.AddrPort]*Link

	sessions map[uint32]*session
	// unconfirmed are sessions of hellos that were replied to, the oldest first. One is used once a
	// datagram has come under it: then the hello was no repetition of an old one.
	unconfirmed []*session

	plain, malformed, badHandshakes, stale, forged, replayed, unsent, began atomic.Uint64
}

// New makes a tunnel that sends its handshakes by out, which keeps nothing of a
// datagram.
func New(key *Key, l Limits, out func(datagram []byte, to netip.AddrPort)) *Tunnel {
	l.complete()
	t := &Tunnel{key: key, limits: l, out: out, sealer: NewSealer(0),
		links: map[netip.AddrPort]*Link{}, sessions: map[uint32]*session{}}
	_, _ = rand.Read(t.instance[:]) // it does not fail
	return t
}

// Configure makes a link that stays. It is called before the tunnel is used.
func (t *Tunnel) Configure(to netip.AddrPort) { t.link(to).kept = true }

// Link returns the link to an address, nil if there is none.
func (t *Tunnel) Link(to netip.AddrPort) *Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.links[to]
}

// Stats says what was refused so far.
func (t *Tunnel) Stats() Stats {
	return Stats{Plain: t.plain.Load(), Malformed: t.malformed.Load(), BadHandshakes: t.badHandshakes.Load(),
		Stale: t.stale.Load(), Forged: t.forged.Load(), Replayed: t.replayed.Load(), Unsent: t.unsent.Load(), Sessions: t.began.Load()}
}

// freeID draws a number for a session of ours.
func (t *Tunnel) freeID() uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		if id := binary.LittleEndian.Uint32(b[:]); id != 0 && t.sessions[id] == nil {
			return id
		}
	}
}

func (t *Tunnel) drop(s *session) {
	if t.sessions[s.id] == s {
		delete(t.sessions, s.id)
	}
}

// keepalive sends a datagram without a frame.
func (t *Tunnel) keepalive(s *session) {
	n := s.sent.Add(1) - 1
	s.quiet++
	if n < 2*t.limits.Frames {
		t.out(t.sealer.seal(s, n, nil), s.link.Address)
	}
}

// Tick sends what is due, and returns when it is to be called again.
func (t *Tunnel) Tick(now time.Time) (next time.Time) {
	next = now.Add(tickEvery)
	for _, l := range t.links {
		if at := l.tick(now); at.Before(next) {
			next = at
		}
	}
	return next
}

// link finds or makes the link to an address whose peer has proved that it has the
// key. When there are too many the one makes place of which nothing has been heard
// for the longest time.
func (t *Tunnel) link(to netip.AddrPort) *Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.links[to]; l != nil {
		return l
	}
	n := 0
	var oldest *Link
	for _, l := range t.links {
		if l.kept {
			continue
		}
		if n++; oldest == nil || l.heardAt.Before(oldest.heardAt) {
			oldest = l
		}
	}
	if n >= maxLinks {
		for _, s := range oldest.sessions {
			t.drop(s)
		}
		oldest.current.Store(nil)
		delete(t.links, oldest.Address)
	}
	l := &Link{tunnel: t, Address: to}
	t.links[to] = l
	return l
}
