package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/flynn/noise"
)

// session is a pair of keys, one for each direction.
type session struct {
	id, peerID uint32 // in datagrams to us, and to the peer
	link       *Link
	made       time.Time
	seal, open cipher.AEAD
	sent       atomic.Uint64 // numbers given out

	// What follows is the tunnel's owner's.
	hello, reply []byte // until the peer is known to have the keys too, at the end that replied
	window       window
	heard        uint64
	frames       uint64 // of heard, those that were not empty
	quiet        uint64 // of sent, those that were empty
}

// newSession makes a session of the keys of a handshake.
func (t *Tunnel) newSession(id, peerID uint32, l *Link, seal, open *noise.CipherState, now time.Time) *session {
	s := &session{id: id, peerID: peerID, link: l, made: now, seal: newAEAD(seal.UnsafeKey()), open: newAEAD(open.UnsafeKey())}
	t.sessions[id] = s
	return s
}

// newAEAD makes AES-256-GCM. That of noise allocates a nonce for each datagram.
func newAEAD(key [32]byte) cipher.AEAD {
	// Neither fails with a key of 32 bytes.
	block, _ := aes.NewCipher(key[:])
	aead, _ := cipher.NewGCM(block)
	return aead
}

// Sealer is where one goroutine seals datagrams, for any link.
type Sealer struct {
	nonce [12]byte
	box   []byte
}

// NewSealer makes a Sealer for frames of up to size bytes.
func NewSealer(size int) *Sealer { return &Sealer{box: make([]byte, headerSize, size+Overhead)} }

// seal makes a datagram, which stays valid until the next.
func (s *Sealer) seal(to *session, number uint64, frame []byte) []byte {
	putHeader(s.box, number, to.peerID, typeFrame)
	binary.BigEndian.PutUint64(s.nonce[4:], number)
	return to.seal.Seal(s.box, s.nonce[:], frame, s.box)
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
	if s.hello != nil {
		t.confirm(s, now)
	}
	if len(frame) == 0 {
		return false
	}
	s.frames++
	return true
}
