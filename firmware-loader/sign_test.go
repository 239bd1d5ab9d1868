package firmware_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// key makes a key of a seed.
func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func idOf(k ed25519.PrivateKey) firmware.KeyID {
	return firmware.IDOf(k.Public().(ed25519.PublicKey))
}

// ring makes a folder with public keys, and opens it.
func ring(t testing.TB, keys ...ed25519.PrivateKey) (*firmware.KeyRing, string) {
	t.Helper()
	dir := t.TempDir()
	for i, k := range keys {
		text := must.Get(firmware.EncodePublicKey(k.Public().(ed25519.PublicKey)))(t)
		write(t, filepath.Join(dir, string(rune('a'+i))+".pub"), string(text))
	}
	return openRing(t, dir), dir
}

func openRing(t testing.TB, dir string) *firmware.KeyRing {
	t.Helper()
	return must.Get(firmware.OpenKeyRing(dir))(t)
}

func write(t testing.TB, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(name, []byte(text), 0o600))
}

func sign(t testing.TB, s *firmware.Spec, k ed25519.PrivateKey) *firmware.Spec {
	t.Helper()
	return must.Get(s.Sign(k))(t)
}

func TestSignAndVerify(t *testing.T) {
	plain := small(t)
	trusted, dir := ring(t, key(1), key(2))
	should.Refuse(plain.Verify(trusted))(t, firmware.ErrUnsigned, "not signed")
	signed := parse(t, sign(t, plain, key(2)).Bytes())
	should.Be(t, same(t, plain, signed), "", "the signature has changed")
	k, err := signed.Verify(trusted)
	should.Hold(t, err == nil && k.ID == idOf(key(2)) && k.File == "b.pub", "%+v, %v", k, err)
	// Signed again, the other signature is gone.
	should.Be(t, must.Get(sign(t, signed, key(1)).Verify(trusted))(t).File, "a.pub")

	strangers, _ := ring(t, key(3))
	var e *firmware.SignatureError
	if _, err := signed.Verify(strangers); !errors.Is(err, firmware.ErrUnknownKey) || !errors.As(err, &e) || e.Key != idOf(key(2)) || e.Hint == "" {
		t.Errorf("unknown key: %v", err)
	}
	write(t, filepath.Join(dir, "revoked"), "# lost in March\n\n"+idOf(key(2)).String()+"  # b\n")
	should.Refuse(signed.Verify(openRing(t, dir)))(t, firmware.ErrRevoked, "revoked key")
	keys := openRing(t, dir).Keys()
	should.Hold(t, len(keys) == 1 && keys[0].File == "a.pub", "keys that are left: %+v", keys)
}

// TestForgeries: signatures that are not of this image.
func TestForgeries(t *testing.T) {
	trusted, _ := ring(t, key(1))
	one := sign(t, small(t), key(1)).Bytes()
	two := smallAs(t, firmware.Meta{Version: "1.1"})
	forge := func(change func(n []byte)) *firmware.Spec {
		b := bytes.Clone(two.Bytes())
		change(contents(t, b, ".note.trapeze")[20:])
		return parse(t, b)
	}
	other := contents(t, one, ".note.trapeze")[20:]
	for name, s := range map[string]*firmware.Spec{
		"of another version": forge(func(n []byte) { copy(n[120:], other[120:]) }),
		"of nothing":         forge(func(n []byte) { copy(n[120:132], other[120:132]) }),
		"by another key": forge(func(n []byte) {
			copy(n[120:], contents(t, sign(t, two, key(2)).Bytes(), ".note.trapeze")[20+120:])
			copy(n[124:132], other[124:132])
		}),
	} {
		should.Refuse(s.Verify(trusted))(t, firmware.ErrSignature, "%s", name)
	}
	// Moved together with its digest, the signature is stale.
	b := bytes.Clone(two.Bytes())
	copy(contents(t, b, ".note.trapeze")[20+88:], other[88:])
	should.Refuse(firmware.Parse(b))(t, firmware.ErrStale, "with its digest")
}

func TestSignWhatWasNotBuilt(t *testing.T) {
	should.Refuse(parse(t, object(t, "everything")).Sign(key(1)))(t, firmware.ErrNote, "an object")
}

// TestBuildDropsSignature: an image that is given another name has nobody's
// signature.
func TestBuildDropsSignature(t *testing.T) {
	signed := sign(t, small(t), key(1))
	s := must.Get(firmware.Build(signed.Bytes(), firmware.Meta{Name: "other", Device: 0x15b31017, BuildID: [20]byte{7}}))(t)
	should.Hold(t, s.Signature == nil && s.Name == "other" && s.Version == "1.0" && s.Device == 0x15b31017 && s.BuildID == [20]byte{7},
		"%+v", s)
	should.Refuse(firmware.Build(signed.Bytes(), firmware.Meta{Name: "a b"}))(t, firmware.ErrNote, "bad name")
	// An object without a note gets one.
	b := signed.Bytes()
	f, err := elfimage.Read(b)
	must.OK(t, err)
	f.Section(".note.trapeze").Name = ".comment"
	f.Section(".comment").Flags = 0
	if s, err = firmware.Build(f.Bytes(), firmware.Meta{Name: "n", Version: "v"}); err != nil || s.Name != "n" || !s.Built {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = firmware.Build(f.Bytes(), firmware.Meta{Name: "n"})
	should.Hold(t, errors.Is(err, firmware.ErrNote), "without a version: %v", err)
}
