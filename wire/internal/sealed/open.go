package sealed

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// Refusal says why a datagram was refused, as far as a user may have to do
// something about it.
type Refusal int

const (
	// NotRefused is also what is refused without further meaning.
	NotRefused Refusal = iota
	// NoKey: the sender has no key: a whole frame has come that is not sealed.
	NoKey
	// OtherKey: the sender has another key, or has none and makes things up. It has said
	// the same hello twice, so that nothing has damaged it on the way.
	OtherKey
)

// maxRefused is the number of hellos that are remembered to find out which come twice: as many peers
// with another key may say hello at a time.
const maxRefused = 8

// Handle takes a datagram that holds no frame, as FrameSize says: a part of a
// handshake, or garbage.
func (t *Tunnel) Handle(datagram []byte, from netip.AddrPort, now time.Time) Refusal {
	switch {
	case !IsSealed(datagram):
		t.plain.Add(1)
		if isPlain(datagram) {
			return NoKey
		}
		return NotRefused
	case datagram[15] == typeHello && len(datagram) == helloSize:
		return t.takeHello(datagram, from, now)
	case datagram[15] == typeReply && len(datagram) == replySize:
		return t.takeReply(datagram, from, now)
	}
	t.malformed.Add(1)
	return NotRefused
}

// Open decrypts a datagram into frame, which has the size that FrameSize says and
// does not overlap it. It reports whether there is a frame to deliver; if not, frame
// may hold anything.
func (t *Tunnel) Open(frame, datagram []byte, from netip.AddrPort, now time.Time) bool {
	s := t.sessions[sessionOf(datagram)]
	if s == nil || s.link.Address != from {
		t.stale.Add(1)
		return false
	}
	n := numberOf(datagram)
	if n >= maxNumber || !s.window.fresh(n) {
		t.replayed.Add(1)
		return false
	}
	binary.BigEndian.PutUint64(t.nonce[4:], n)
	if _, err := s.open.Open(frame[:0], t.nonce[:], datagram[headerSize:], datagram[:headerSize]); err != nil {
		t.forged.Add(1)
		return false
	}
	s.window.mark(n)
	s.heard++
	s.last = now
	if !s.confirmed {
		t.confirm(s, now)
	}
	if len(frame) == 0 {
		return false
	}
	s.frames++
	return true
}

// takeHello replies to a hello. Nothing else changes: it may be an old one that
// a third host repeats.
func (t *Tunnel) takeHello(datagram []byte, from netip.AddrPort, now time.Time) Refusal {
	h, ok := parseHello(datagram, t.handshake)
	if !ok {
		t.badHandshakes.Add(1)
		this := [helloSize]byte(datagram)
		if slices.Contains(t.refused, this) {
			return OtherKey
		}
		if len(t.refused) == maxRefused {
			t.refused = slices.Delete(t.refused, 0, 1)
		}
		t.refused = append(t.refused, this)
		return NotRefused
	}
	if h.instance == t.instance { // a third host reflects it
		t.badHandshakes.Add(1)
		return NotRefused
	}
	for i := range t.answered {
		if a := &t.answered[i]; a.session != nil && a.hello == h && a.from == from {
			t.out(a.datagram, from) // the reply was lost
			return NotRefused
		}
	}
	r := reply{session: t.freeID(), instance: t.instance}
	t.read(r.nonce[:])
	s := t.newSession(&h, &r, false, now)
	if s == nil {
		return NotRefused
	}
	s.id, s.peerID = r.session, h.session
	// The link is made, or found, once the peer has shown that it lives.
	s.link = &Link{tunnel: t, Address: from}
	t.sessions[s.id] = s
	a := answer{hello: h, from: from, session: s, datagram: r.datagram(t.handshake, &h)}
	if len(t.answered) < maxAnswered {
		t.answered = append(t.answered, a)
	} else {
		t.drop(t.answered[t.next].session)
		t.answered[t.next] = a
		t.next = (t.next + 1) % maxAnswered
	}
	t.out(a.datagram, from)
	return NotRefused
}

// takeReply begins the session that we said hello for.
func (t *Tunnel) takeReply(datagram []byte, from netip.AddrPort, now time.Time) Refusal {
	l := t.links[from]
	if l == nil || l.pending == nil || sessionOf(datagram) != l.pending.session {
		t.stale.Add(1)
		return NotRefused
	}
	h := &l.pending.hello
	r, ok := parseReply(datagram, t.handshake, h)
	if !ok || r.instance == t.instance {
		// A peer with another key does not reply: it is damaged, or made up.
		t.badHandshakes.Add(1)
		return NotRefused
	}
	s := t.newSession(h, &r, true, now)
	if s == nil {
		return NotRefused
	}
	s.id, s.peerID, s.link, s.confirmed = h.session, r.session, l, true
	t.sessions[s.id] = s
	l.install(s, now)
	t.keepalive(s) // the peer waits for a datagram under the new keys
	return NotRefused
}

// newSession makes the keys of a session; nil if the cryptography refuses.
func (t *Tunnel) newSession(h *hello, r *reply, ours bool, now time.Time) *session {
	seal, open, err := t.key.sessionKeys(h, r)
	if err != nil {
		return nil
	}
	if !ours {
		seal, open = open, seal
	}
	s := &session{made: now, last: now}
	if s.seal, err = newAEAD(seal); err != nil {
		return nil
	}
	if s.open, err = newAEAD(open); err != nil {
		return nil
	}
	return s
}

// confirm puts a session into use that was made for a hello: only who has just got
// our reply, and has the key, can have sent a datagram under it.
func (t *Tunnel) confirm(s *session, now time.Time) {
	s.confirmed = true
	for i := range t.answered {
		if t.answered[i].session == s {
			t.answered[i] = answer{}
		}
	}
	s.link = t.link(s.link.Address)
	s.link.install(s, now)
	t.keepalive(s)
}
