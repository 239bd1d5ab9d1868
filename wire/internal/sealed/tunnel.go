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
	key       *Key
	handshake []byte
	limits    Limits
	instance  instance
	out       func(datagram []byte, to netip.AddrPort)
	sealer    *Sealer
	nonce     [12]byte

	mu    sync.Mutex // of links, which only the owner changes
	links map[netip.AddrPort]*Link

	sessions map[uint32]*session
	answered []answer // ring, oldest at next once it is full
	next     int
	changes  uint64
	refused  [][helloSize]byte // the last hellos whose authentication code was wrong

	plain, malformed, badHandshakes, stale, forged, replayed, unsent, began atomic.Uint64
}

// answer is a hello that was replied to. Its session is used once a datagram has
// come under it: then the hello was no repetition of an old one.
type answer struct {
	hello
	from     netip.AddrPort
	session  *session
	datagram []byte
}

// New makes a tunnel that sends its handshakes by out, which keeps nothing of a
// datagram. Errors are those of the cryptography, if it is restricted.
func New(key *Key, l Limits, out func(datagram []byte, to netip.AddrPort)) (*Tunnel, error) {
	l.complete()
	t := &Tunnel{key: key, limits: l, out: out, sealer: NewSealer(0),
		links: map[netip.AddrPort]*Link{}, sessions: map[uint32]*session{}}
	t.read(t.instance[:])
	var err error
	t.handshake, err = key.handshakeKey()
	return t, err
}

// read fills b with random bytes. crypto/rand.Read does not fail.
func (t *Tunnel) read(b []byte) { _, _ = rand.Read(b) }

// Configure makes a link that stays. It is called before the tunnel is used.
func (t *Tunnel) Configure(to netip.AddrPort) *Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[to]
	if l == nil {
		l = &Link{tunnel: t, Address: to, kept: true}
		t.links[to] = l
	}
	return l
}

// Link returns the link to an address, nil if there is none.
func (t *Tunnel) Link(to netip.AddrPort) *Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.links[to]
}

// Changes changes whenever a session has begun: then Tick is to be called, and Link
// may return something else than before.
func (t *Tunnel) Changes() uint64 { return t.changes }

// Stats says what was refused so far.
func (t *Tunnel) Stats() Stats {
	return Stats{Plain: t.plain.Load(), Malformed: t.malformed.Load(), BadHandshakes: t.badHandshakes.Load(),
		Stale: t.stale.Load(), Forged: t.forged.Load(), Replayed: t.replayed.Load(), Unsent: t.unsent.Load(), Sessions: t.began.Load()}
}

// freeID draws a number for a session of ours.
func (t *Tunnel) freeID() uint32 {
	for {
		var b [4]byte
		t.read(b[:])
		if id := binary.LittleEndian.Uint32(b[:]); id != 0 && t.sessions[id] == nil {
			return id
		}
	}
}

func (t *Tunnel) drop(s *session) {
	if s != nil && t.sessions[s.id] == s {
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

// Tick sends what is due. It returns when it is to be called again; zero if it need
// not be.
func (t *Tunnel) Tick(now time.Time) (next time.Time) {
	for _, l := range t.links {
		l.tick(now)
		due := time.Time{}
		if l.current.Load() != nil || len(l.old) > 0 {
			due = l.look
		}
		if p := l.pending; p != nil && (due.IsZero() || p.due.Before(due)) {
			due = p.due
		}
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
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
		for _, s := range append(oldest.old, oldest.current.Load()) {
			t.drop(s)
		}
		oldest.current.Store(nil)
		delete(t.links, oldest.Address)
	}
	l := &Link{tunnel: t, Address: to}
	t.links[to] = l
	return l
}
