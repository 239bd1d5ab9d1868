package firmware

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// Refusal says why the checker refuses a program, and at which instruction.
type Refusal = checker.Refusal

// Reasons why an image is refused, as errors.Is finds them.
var (
	// ErrFormat: the file is not an ELF file of this form.
	ErrFormat = elfimage.ErrFormat
	// ErrNote: the file has no note, or one that makes no sense.
	ErrNote = errors.New("bad note")
	// ErrStale: the digest in the note is not that of the programs: the file was
	// changed after it was built and signed.
	ErrStale = errors.New("changed after it was built")
)

// Reasons of a SignatureError.
var (
	// ErrUnsigned: the image has no signature.
	ErrUnsigned = errors.New("not signed")
	// ErrUnknownKey: the key is not in the key ring.
	ErrUnknownKey = errors.New("signed with a key that is not in the key ring")
	// ErrRevoked: the key is in the key ring's list of revoked keys.
	ErrRevoked = errors.New("signed with a revoked key")
	// ErrSignature: it is the signature of something else.
	ErrSignature = errors.New("wrong signature")
)

// SignatureError says why an image is not trusted.
type SignatureError struct {
	Key    KeyID  // that the signature names; zero if there is none
	Ring   string // folder of the key ring
	Hint   string // what to do
	Reason error  // one of the above
}

func (e *SignatureError) Error() string {
	s := e.Reason.Error()
	if e.Key != (KeyID{}) {
		s += fmt.Sprintf(": key %s, key ring %s", e.Key, e.Ring)
	}
	return s + " (" + e.Hint + ")"
}

// Unwrap returns Reason.
func (e *SignatureError) Unwrap() error { return e.Reason }

func refuse(reason error, section, format string, args ...any) error {
	return &elfimage.Error{Section: section, Detail: fmt.Sprintf(format, args...), Reason: reason}
}
