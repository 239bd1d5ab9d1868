package firmware

import (
	"crypto/ed25519"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// signedPrefix keeps a signature of an image from being one of anything else.
const signedPrefix = "trapeze control program v1\x00"

// message is the text that a signature of the image signs.
func (s *Spec) message() []byte { return append([]byte(signedPrefix), s.Digest[:]...) }

// Sign returns the image with a signature, in place of any that it had. It refuses
// an image that states no digest with ErrNote: Build first.
func (s *Spec) Sign(key ed25519.PrivateKey) (*Spec, error) {
	if !s.Built {
		return nil, refuse(ErrNote, elfimage.NoteSection, "it has no digest; 'trapeze fw build' adds it")
	}
	note := *s.note
	note.Flags |= elfimage.FlagSigned
	note.KeyID = IDOf(key.Public().(ed25519.PublicKey))
	copy(note.Signature[:], ed25519.Sign(key, s.message()))
	return s.withNote(&note)
}

// Verify returns the key that has signed the image. Errors are *SignatureError.
func (s *Spec) Verify(ring *KeyRing) (Key, error) {
	if s.Signature == nil {
		return Key{}, Unsigned()
	}
	return ring.Verify(s.Signature.Key, s.message(), s.Signature.Bytes[:])
}

// Unsigned is the error of an image without a signature.
func Unsigned() *SignatureError {
	return &SignatureError{Hint: "sign it with 'trapeze fw sign'", Reason: ErrUnsigned}
}
