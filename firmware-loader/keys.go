package firmware

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// KeyID names a public key: the first 8 bytes of the SHA-256 of its 32.
type KeyID [8]byte

// String returns the ID in hexadecimal.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

func parseKeyID(s string) (id KeyID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("key ID %+q: allowed: %d hexadecimal digits", s, 2*len(id))
	}
	copy(id[:], b)
	return id, nil
}

// IDOf returns the ID of a public key.
func IDOf(key ed25519.PublicKey) (id KeyID) {
	sum := sha256.Sum256(key)
	copy(id[:], sum[:])
	return id
}

// Types of PEM blocks (RFC 7468).
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// maxKeyFile is the largest key file that is read, in bytes.
const maxKeyFile = 16 << 10

// ErrKey: a key file is not what it should be.
var ErrKey = errors.New("bad key file")

// EncodePrivateKey returns a key as PEM (PKCS #8, RFC 5958).
func EncodePrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), nil
}

// EncodePublicKey returns a key as PEM (SubjectPublicKeyInfo, RFC 5280).
func EncodePublicKey(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), nil
}

// DecodePrivateKey reads what EncodePrivateKey, or openssl genpkey -algorithm
// ed25519, wrote. Errors wrap ErrKey.
func DecodePrivateKey(b []byte) (ed25519.PrivateKey, error) {
	return decodeKey[ed25519.PrivateKey](b, privateBlock, x509.ParsePKCS8PrivateKey)
}

// DecodePublicKey reads what EncodePublicKey, or openssl pkey -pubout, wrote.
// Errors wrap ErrKey.
func DecodePublicKey(b []byte) (ed25519.PublicKey, error) {
	return decodeKey[ed25519.PublicKey](b, publicBlock, x509.ParsePKIXPublicKey)
}

// decodeKey reads one PEM block and nothing behind it.
func decodeKey[T any](b []byte, kind string, parse func([]byte) (any, error)) (key T, err error) {
	if len(b) > maxKeyFile {
		return key, fmt.Errorf("%w: %d bytes; allowed: up to %d", ErrKey, len(b), maxKeyFile)
	}
	block, rest := pem.Decode(b)
	switch {
	case block == nil:
		return key, fmt.Errorf("%w: no PEM block", ErrKey)
	case block.Type != kind:
		return key, fmt.Errorf("%w: PEM block %+q instead of %q", ErrKey, block.Type, kind)
	case strings.TrimSpace(string(rest)) != "":
		return key, fmt.Errorf("%w: something follows the PEM block", ErrKey)
	}
	parsed, err := parse(block.Bytes)
	if err != nil {
		return key, fmt.Errorf("%w: %w", ErrKey, err)
	}
	key, ok := parsed.(T)
	if !ok {
		return key, fmt.Errorf("%w: %T instead of an Ed25519 key", ErrKey, parsed)
	}
	return key, nil
}
