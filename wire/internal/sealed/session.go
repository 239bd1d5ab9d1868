package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// session is a pair of keys, one for each direction.
type session struct {
	id, peerID uint32 // in datagrams to us, and to the peer
	link       *Link
	made       time.Time
	seal, open cipher.AEAD
	sent       atomic.Uint64 // numbers given out

	// What follows is the tunnel's owner's.
	window    window
	confirmed bool // the peer is known to have the keys too
	heard     uint64
	frames    uint64 // of heard, those that were not empty
	quiet     uint64 // of sent, those that were empty
	last      time.Time
}

// newAEAD makes AES-256-GCM. The key has 32 bytes, so it cannot fail.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
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
