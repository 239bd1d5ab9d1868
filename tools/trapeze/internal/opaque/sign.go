package opaque

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/bounded"
)

// signedPrefix keeps a signature of an image from being one of anything else.
const signedPrefix = "trapeze opaque image v1\x00"

func (img *Image) message() []byte { return append([]byte(signedPrefix), img.Digest[:]...) }

// Verify returns the key that has signed the image. Errors are
// *firmware.SignatureError.
func (img *Image) Verify(ring *firmware.KeyRing) (firmware.Key, error) {
	if img.Signature == nil {
		return firmware.Key{}, firmware.Unsigned()
	}
	return ring.Verify(img.Signature.Key, img.message(), img.Signature.Bytes[:])
}

// Sign returns the text of the manifest in that file with a signature at its end,
// in place of any that it had. The rest of the text stays as it is.
func Sign(file string, key ed25519.PrivateKey) ([]byte, error) {
	img, err := Open(file)
	if err != nil {
		return nil, err
	}
	text, err := bounded.ReadFile(file, MaxManifest)
	if err != nil {
		return nil, err
	}
	text = withoutSignature(text)
	text = fmt.Appendf(text, "[signature]\nkey = %q\nvalue = \"%x\"\n",
		firmware.IDOf(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, img.message()))
	// A text that is written otherwise than we think must not come out as
	// another manifest.
	parsed, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	for i := range parsed.Segments {
		if i < len(img.Segments) {
			parsed.Segments[i].Bytes = img.Segments[i].Bytes
		}
	}
	if err := parsed.place(file); err != nil {
		return nil, err
	}
	if parsed.digest() != img.Digest {
		return nil, &Error{File: file, Key: "signature", Detail: "the old one cannot be taken out", Allowed: "a [signature] table on lines of its own", Reason: ErrSyntax}
	}
	return text, nil
}

// withoutSignature takes the table [signature] out of a manifest.
func withoutSignature(text []byte) []byte {
	var out []byte
	inside := false
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimSpace(line); bytes.HasPrefix(trimmed, []byte("[")) {
			inside = bytes.HasPrefix(trimmed, []byte("[signature]"))
		}
		if !inside {
			out = append(out, line...)
		}
	}
	out = bytes.TrimRight(out, "\n")
	return append(out, "\n\n"...)
}
