package fwcmd

import (
	"errors"
	"fmt"
	"io/fs"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// signatureState says how far a signature can be trusted.
type signatureState struct {
	// State is unsigned, valid, unknown key, revoked key, wrong or not verified.
	State string `json:"state"`
	Key   string `json:"key,omitempty"`
	// Owner is the file of the key ring with the key.
	Owner string `json:"owner,omitempty"`
	// Ring is the folder of the key ring.
	Ring string `json:"key_ring,omitempty"`
}

// openKeyRing opens the key ring in dir, and says what to do if there is none.
func openKeyRing(dir string) (*firmware.KeyRing, error) {
	ring, err := firmware.OpenKeyRing(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = shell.Hinted(err, "put public keys into that folder, or give another with --keys")
	}
	return ring, err
}

// state verifies the signature with the key ring in dir. What is wrong with the
// signature is refused, a *firmware.SignatureError or what keeps the key ring from
// being read; err is for a key ring that was asked for, or is there, and cannot be
// used.
func (img *Image) state(dir string, asked bool) (s signatureState, refused, err error) {
	sig := img.spec.Signature
	if sig == nil {
		return signatureState{State: "unsigned"}, firmware.Unsigned(), nil
	}
	s = signatureState{State: "not verified", Key: sig.Key.String(), Ring: dir}
	ring, err := openKeyRing(dir)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return s, fmt.Errorf("signed with key %s, and there is no key ring to verify it: %w", sig.Key, err), nil
	}
	if err != nil {
		return s, nil, err
	}
	key, err := img.spec.Verify(ring)
	switch {
	case err == nil:
		s.State, s.Owner = "valid", key.File
	case errors.Is(err, firmware.ErrUnknownKey):
		s.State = "unknown key"
	case errors.Is(err, firmware.ErrRevoked):
		s.State = "revoked key"
	default:
		s.State = "wrong"
	}
	return s, err, nil
}

// trusting are the back ends, and the schemes of their addresses, that run what
// is not signed: their NICs act as the user who started them.
var trusting = map[string]bool{"emulator": true, "emu": true, "eth": true, "vfio-user": true}

// Trusting says whether NICs of a back end run images without a signature.
func Trusting(backend string) bool { return trusting[backend] }

// trust refuses an image that its device must not run. allowed says that the user,
// or the device, does without a signature that is good; a signature of something
// else is never let pass.
func (img *Image) trust(dir string, asked, allowed bool) (signatureState, error) {
	s, refused, err := img.state(dir, asked)
	switch {
	case err != nil:
		return s, err
	case refused == nil, allowed && !errors.Is(refused, firmware.ErrSignature):
		return s, nil
	}
	if errors.Is(refused, firmware.ErrSignature) {
		return s, fmt.Errorf("%s: %w", img.file, refused)
	}
	return s, fmt.Errorf("%s: %w; --allow-unsigned loads it nevertheless", img.file, refused)
}
