package sealed

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/flynn/noise"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What is wrong with a peer, where a user may have to do something about it.
const (
	noKey    = "the peer has no key, and this end has one: both need the same key=FILE" // a frame has come that is not sealed
	otherKey = "the peer has another key: both need the same key=FILE"                  // or it has none, and makes things up
)

// suite makes the handshake Noise_NNpsk0_25519_AESGCM_SHA256.
var suite = noise.NewCipherSuite(noise.DH25519, noise.CipherAESGCM, noise.HashSHA256)

// prologue, and the header of the hello, are authenticated with both messages.
const prologue = "trapeze sealed wire 2"

// handshake begins the part of one end in a handshake.
func (k *Key) handshake(initiator bool, hello []byte) (*noise.HandshakeState, error) {
	return noise.NewHandshakeState(noise.Config{CipherSuite: suite, Pattern: noise.HandshakeNN, Initiator: initiator,
		Prologue: append([]byte(prologue), hello[:headerSize]...), PresharedKey: k.secret[:]})
}

// attempt is a hello that has not been replied to.
type attempt struct {
	id         uint32
	state      *noise.HandshakeState
	datagram   []byte
	begun, due time.Time
	pause      time.Duration
}

// newAttempt makes a hello; nil if the cryptography refuses.
func (t *Tunnel) newAttempt(now time.Time) *attempt {
	p := &attempt{id: t.freeID(), begun: now, pause: helloFirst}
	header := make([]byte, headerSize, helloSize)
	putHeader(header, 0, p.id, typeHello)
	var err error
	if p.state, err = t.key.handshake(true, header); err != nil {
		return nil
	}
	if p.datagram, _, _, err = p.state.WriteMessage(header, t.instance[:]); err != nil {
		return nil
	}
	return p
}

// Handle takes a datagram that holds no frame, as FrameSize says: a part of a
// handshake, or garbage. It says what is wrong with the peer, if a user may have to do something about it.
func (t *Tunnel) Handle(datagram []byte, from netip.AddrPort, now time.Time) (wrong string) {
	switch {
	case !IsSealed(datagram):
		t.plain.Add(1)
		if h := datasheet.HeaderAt(datagram); h != nil && h.EtherType == datasheet.EtherType && h.Version == datasheet.WireVersion {
			return noKey
		}
	case numberOf(datagram) != 0 || sessionOf(datagram) == 0:
		t.malformed.Add(1)
	case datagram[15] == typeHello && len(datagram) == helloSize:
		return t.takeHello(datagram, from, now)
	case datagram[15] == typeReply && len(datagram) == replySize:
		t.takeReply(datagram, from, now)
	default:
		t.malformed.Add(1)
	}
	return ""
}

// takeHello replies to a hello. Nothing else changes: it may be an old one that
// a third host repeats.
func (t *Tunnel) takeHello(datagram []byte, from netip.AddrPort, now time.Time) (wrong string) {
	for _, s := range t.unconfirmed {
		if s.link.Address == from && bytes.Equal(s.hello, datagram) {
			t.out(s.reply, from) // the reply was lost
			return ""
		}
	}
	state, err := t.key.handshake(false, datagram)
	if err != nil {
		return ""
	}
	instance, _, _, err := state.ReadMessage(nil, datagram[headerSize:])
	if err != nil {
		t.badHandshakes.Add(1)
		return otherKey
	}
	if bytes.Equal(instance, t.instance[:]) { // a third host reflects it
		t.badHandshakes.Add(1)
		return ""
	}
	id, reply := t.freeID(), make([]byte, headerSize, replySize)
	putHeader(reply, 0, sessionOf(datagram), typeReply)
	reply, open, seal, err := state.WriteMessage(reply, binary.LittleEndian.AppendUint32(nil, id))
	if err != nil { // its public key is one of the few bad ones
		t.badHandshakes.Add(1)
		return ""
	}
	// The link is made, or found, once the peer has shown that it lives.
	s := t.newSession(id, sessionOf(datagram), &Link{tunnel: t, Address: from}, seal, open, now)
	s.hello, s.reply = slices.Clone(datagram), reply
	if len(t.unconfirmed) == maxUnconfirmed {
		t.drop(t.unconfirmed[0])
		t.unconfirmed = slices.Delete(t.unconfirmed, 0, 1)
	}
	t.unconfirmed = append(t.unconfirmed, s)
	t.out(reply, from)
	return ""
}

// takeReply begins the session that we said hello for.
func (t *Tunnel) takeReply(datagram []byte, from netip.AddrPort, now time.Time) {
	l := t.links[from]
	if l == nil || l.pending == nil || sessionOf(datagram) != l.pending.id {
		t.stale.Add(1)
		return
	}
	peer, seal, open, err := l.pending.state.ReadMessage(nil, datagram[headerSize:])
	if err != nil {
		// A peer with another key does not reply: it is damaged, or made up.
		t.badHandshakes.Add(1)
		return
	}
	s := t.newSession(l.pending.id, binary.LittleEndian.Uint32(peer), l, seal, open, now)
	l.install(s, now)
	t.keepalive(s) // the peer waits for a datagram under the new keys
}

// confirm puts a session into use that was made for a hello: only a peer that has just got
// our reply, and has the key, can have sent a datagram under it.
func (t *Tunnel) confirm(s *session, now time.Time) {
	s.hello, s.reply = nil, nil
	t.unconfirmed = slices.DeleteFunc(t.unconfirmed, func(o *session) bool { return o == s })
	s.link = t.link(s.link.Address)
	s.link.install(s, now)
}
