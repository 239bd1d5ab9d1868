package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// instance names a Tunnel for as long as it lives: one that is started again has
// another.
type instance [instanceSize]byte

// hello begins a handshake.
type hello struct {
	session  uint32 // in datagrams to the sender of the hello
	instance instance
	nonce    [nonceSize]byte
}

// reply ends a handshake. Its header has the session of the hello.
type reply struct {
	session  uint32 // in datagrams to the sender of the reply
	instance instance
	nonce    [nonceSize]byte
}

// transcript is the content of a hello, as it stands in the datagram before the code.
func (h *hello) transcript() []byte {
	b := make([]byte, helloSize-macSize)
	putHeader(b, 0, h.session, typeHello)
	at := copy(b[headerSize:], h.instance[:]) + headerSize
	copy(b[at:], h.nonce[:])
	return b
}

// datagram returns the hello with its authentication code.
func (h *hello) datagram(key []byte) []byte {
	b := h.transcript()
	return authenticate(b, key, b)
}

// transcript is the content of a reply, but for the session of the hello.
func (r *reply) transcript() []byte {
	b := make([]byte, replySize-macSize)
	putHeader(b, 0, 0, typeReply)
	at := copy(b[headerSize:], r.instance[:]) + headerSize
	binary.LittleEndian.PutUint32(b[at:], r.session)
	copy(b[at+8:], r.nonce[:])
	return b
}

// datagram returns the reply to a hello. Its authentication code covers both.
func (r *reply) datagram(key []byte, to *hello) []byte {
	b := r.transcript()
	binary.LittleEndian.PutUint32(b[8:], to.session)
	return authenticate(b, key, to.transcript(), b)
}

func authenticate(b, key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(b)
}

// authentic compares two datagrams in a time that does not tell where they differ.
func authentic(got, want []byte) bool { return hmac.Equal(got, want) }

// parseHello reads a hello whose authentication code is good.
func parseHello(b, key []byte) (h hello, ok bool) {
	if len(b) != helloSize {
		return h, false
	}
	h.session = sessionOf(b)
	at := copy(h.instance[:], b[headerSize:]) + headerSize
	copy(h.nonce[:], b[at:])
	return h, authentic(b, h.datagram(key)) && h.session != 0
}

// parseReply reads the reply to a hello, if its authentication code is good.
func parseReply(b, key []byte, to *hello) (r reply, ok bool) {
	if len(b) != replySize {
		return r, false
	}
	at := copy(r.instance[:], b[headerSize:]) + headerSize
	r.session = binary.LittleEndian.Uint32(b[at:])
	copy(r.nonce[:], b[at+8:])
	return r, authentic(b, r.datagram(key, to)) && r.session != 0
}
