package firmware

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// KeyRing holds the public keys of those whose images are trusted.
type KeyRing struct {
	dir     string
	keys    map[KeyID]Key
	revoked map[KeyID]bool
}

// Key is a key of a key ring.
type Key struct {
	ID     KeyID
	Public ed25519.PublicKey
	File   string // without its folder
}

// Names of files of a key ring, and limits.
const (
	publicSuffix = ".pub"
	revokedFile  = "revoked"
	maxKeys      = 1024
	maxRevoked   = 64 << 10 // bytes of the file
)

// OpenKeyRing reads a folder: each file whose name ends in .pub is a public key in
// PEM, and the file "revoked", if there is one, has the ID of a revoked key on each
// line; a # starts a remark. A file that makes no sense is an error: a key that is
// missing without an error, or not revoked, is worse.
func OpenKeyRing(dir string) (*KeyRing, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("key ring: %w", err)
	}
	r := &KeyRing{dir: dir, keys: map[KeyID]Key{}, revoked: map[KeyID]bool{}}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), publicSuffix) {
			continue
		}
		if len(r.keys) == maxKeys {
			return nil, fmt.Errorf("key ring %s: more than %d keys", dir, maxKeys)
		}
		b, err := readFile(filepath.Join(dir, e.Name()), maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("key ring: %w", err)
		}
		public, err := DecodePublicKey(b)
		if err != nil {
			return nil, fmt.Errorf("key ring: %s: %w", filepath.Join(dir, e.Name()), err)
		}
		r.keys[IDOf(public)] = Key{ID: IDOf(public), Public: public, File: e.Name()}
	}
	if err := r.readRevoked(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *KeyRing) readRevoked() error {
	name := filepath.Join(r.dir, revokedFile)
	b, err := readFile(name, maxRevoked)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("key ring: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(b)) {
		number++
		id, _, _ := strings.Cut(line, "#")
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		parsed, err := parseKeyID(id)
		if err != nil {
			return fmt.Errorf("key ring: %s:%d: %w", name, number, err)
		}
		r.revoked[parsed] = true
	}
	return nil
}

// Keys lists the keys by file name, revoked ones left out.
func (r *KeyRing) Keys() []Key {
	var all []Key
	for id, k := range r.keys {
		if !r.revoked[id] {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b Key) int { return strings.Compare(a.File, b.File) })
	return all
}

// Verify checks a signature of a message and returns the key. Errors are
// *SignatureError.
func (r *KeyRing) Verify(id KeyID, message, signature []byte) (Key, error) {
	bad := func(reason error, hint string) (Key, error) {
		return Key{}, &SignatureError{Key: id, Ring: r.dir, Hint: hint, Reason: reason}
	}
	if r.revoked[id] {
		return bad(ErrRevoked, "ask its maker for an image with a valid signature")
	}
	key, ok := r.keys[id]
	if !ok {
		return bad(ErrUnknownKey, "if you trust its owner, put the public key into the key ring as NAME"+publicSuffix)
	}
	if !ed25519.Verify(key.Public, message, signature) {
		return bad(ErrSignature, "the image or its signature was changed; get it again")
	}
	return key, nil
}

// DefaultKeyRing is the folder of the user's key ring:
// trapeze/keys where the user's configuration is (os.UserConfigDir), or
// /etc/trapeze/keys for users without one.
func DefaultKeyRing() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = "/etc"
	}
	return filepath.Join(dir, "trapeze", "keys")
}
