package firmware_test

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

func TestKeyFiles(t *testing.T) {
	private := must.Get(firmware.EncodePrivateKey(key(1)))(t)
	public := must.Get(firmware.EncodePublicKey(key(1).Public().(ed25519.PublicKey)))(t)
	k, err := firmware.DecodePrivateKey(private)
	should.Hold(t, err == nil && k.Equal(key(1)), "private key: %v", err)
	p, err := firmware.DecodePublicKey(public)
	should.Hold(t, err == nil && p.Equal(key(1).Public()), "public key: %v", err)
	const rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\nKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n"
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "key", "a private key": string(private), "two": string(public) + string(public),
		"cut off": string(public[:len(public)/2]), "RSA": rsa, "huge": string(public) + strings.Repeat("\n", 16<<10),
		"not base64": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
	} {
		should.Refuse(firmware.DecodePublicKey([]byte(text)))(t, firmware.ErrKey, "%s", name)
	}
	should.Refuse(firmware.DecodePrivateKey(public))(t, firmware.ErrKey, "a public key as a private one")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "k.pem"), string(private))
	k, err = firmware.ReadPrivateKey(filepath.Join(dir, "k.pem"))
	should.Hold(t, err == nil && k.Equal(key(1)), "from a file: %v", err)
	should.Refuse(firmware.ReadPrivateKey(filepath.Join(dir, "none.pem")))(t, fs.ErrNotExist, "no file")
}

// TestKeysOfOpenSSL: keys that openssl makes, and it reads ours.
func TestKeysOfOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), openssl, args...).CombinedOutput()
		must.Hold(t, err == nil, "openssl %v: %v\n%s", args, err, out)
	}
	pem, pub := filepath.Join(dir, "k.pem"), filepath.Join(dir, "k.pub")
	run("genpkey", "-algorithm", "ed25519", "-out", pem)
	run("pkey", "-in", pem, "-pubout", "-out", pub)
	k := must.Get(firmware.ReadPrivateKey(pem))(t)
	should.Be(t, must.Get(sign(t, small(t), k).Verify(openRing(t, dir)))(t).File, "k.pub")
	ours := must.Get(firmware.EncodePrivateKey(key(1)))(t)
	write(t, pem, string(ours))
	run("pkey", "-in", pem, "-noout")
}

func TestKeyRingRefuses(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"not a key":       func(t *testing.T, dir string) { write(t, filepath.Join(dir, "x.pub"), "hello") },
		"a folder":        func(t *testing.T, dir string) { os.Mkdir(filepath.Join(dir, "x.pub"), 0o700) },
		"a huge file":     func(t *testing.T, dir string) { write(t, filepath.Join(dir, "x.pub"), strings.Repeat("x", 1<<20)) },
		"a pipe":          func(t *testing.T, dir string) { unix.Mkfifo(filepath.Join(dir, "x.pub"), 0o600) },
		"a dangling link": func(t *testing.T, dir string) { os.Symlink("nowhere", filepath.Join(dir, "x.pub")) },
		"bad revocation":  func(t *testing.T, dir string) { write(t, filepath.Join(dir, "revoked"), "key one\n") },
		"half an ID":      func(t *testing.T, dir string) { write(t, filepath.Join(dir, "revoked"), "0123456789abcd\n") },
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := ring(t, key(1))
			spoil(t, dir)
			r, err := firmware.OpenKeyRing(dir)
			should.Hold(t, err != nil && r == nil, "accepted: %v", r)
		})
	}
	should.Refuse(firmware.OpenKeyRing(filepath.Join(t.TempDir(), "none")))(t, fs.ErrNotExist, "no folder")
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "image")
	write(t, name, string(small(t).Bytes()))
	should.Be(t, must.Get(firmware.Open(name))(t).Name, "small")
	write(t, name, "hello")
	_, err := firmware.Open(name)
	should.Hold(t, errors.Is(err, elfimage.ErrFormat) && strings.Contains(err.Error(), name), "no image: %v", err)
	_, err = firmware.Open("/dev/zero")
	should.Hold(t, err != nil, "a device was read")
	must.OK(t, os.Truncate(name, elfimage.MaxFile+1))
	_, err = firmware.Open(name)
	should.Hold(t, err != nil, "a file that is too large was read")
}
