package opaque_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/opaque"
	"golang.org/x/sys/unix"
)

var text, data = bytes.Repeat([]byte("text"), 100), []byte("data")

// manifest returns a good one, with old replaced by new.
func manifest(old, new string) string {
	s := fmt.Sprintf(`# made by hand
name = "acme-offload"
version = "2.1"
devices = ["15b3:1017", "1234:7250"]
entry = 0x410
ready = 0x59444552
sram = 0x2000

[[segments]] # code
file = "text.bin"
address = 0x400
sha256 = "%x"

[[segments]]
file = "more/data.bin"
address = 0x1000
sha256 = "%x"
`, sha256.Sum256(text), sha256.Sum256(data))
	if strings.Count(s, old) == 0 {
		panic("nothing to replace: " + old)
	}
	return strings.Replace(s, old, new, 1)
}

// folder puts a manifest and its segments into a folder and returns the
// manifest's name.
func folder(t testing.TB, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"image.toml": []byte(manifest), "text.bin": text, "more/data.bin": data} {
		write(t, filepath.Join(dir, name), b)
	}
	return filepath.Join(dir, "image.toml")
}

func write(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string) *opaque.Image {
	t.Helper()
	img, err := opaque.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestOpen(t *testing.T) {
	img := open(t, folder(t, manifest("name", "name")))
	if img.Name != "acme-offload" || img.Version != "2.1" || img.Entry != 0x410 || img.Ready != 0x59444552 || img.SRAM != 0x2000 || img.Signature != nil {
		t.Errorf("%+v", img)
	}
	if len(img.Segments) != 2 || !bytes.Equal(img.Segments[0].Bytes, text) || img.Segments[1].Address != 0x1000 {
		t.Errorf("segments %+v", img.Segments)
	}
	if img.DeviceNames() != "15b3:1017, 1234:7250" {
		t.Errorf("devices %s", img.DeviceNames())
	}
	loaded, err := img.For(0x12347250)
	if err != nil || len(loaded.Segments) != 2 || loaded.Segments[1].Offset != 0x1000 || !bytes.Equal(loaded.Segments[1].Bytes, data) ||
		loaded.Entry != 0x410 || loaded.Ready != 0x59444552 || loaded.SRAM != 0x2000 || loaded.Device != 0x12347250 ||
		loaded.Name != img.Name || loaded.Version != img.Version || loaded.Digest != [32]byte{} {
		t.Errorf("%+v, %v", loaded, err)
	}
	if _, err := img.For(0x12347251); !errors.Is(err, opaque.ErrDevice) {
		t.Errorf("another device: %v", err)
	}
	anyone := open(t, folder(t, manifest(`["15b3:1017", "1234:7250"]`, `["any"]`)))
	if _, err := anyone.For(0x12347251); err != nil || anyone.DeviceNames() != "any" {
		t.Errorf("any device: %v, %s", err, anyone.DeviceNames())
	}
	// Without sram, it ends with the last segment.
	if img := open(t, folder(t, manifest("sram = 0x2000\n", ""))); img.SRAM != 0x1004 {
		t.Errorf("SRAM %#x", img.SRAM)
	}
}

// TestDigest: it changes with everything that is loaded, and with nothing else.
func TestDigest(t *testing.T) {
	digest := open(t, folder(t, manifest("name", "name"))).Digest
	for old, new := range map[string]string{
		"acme-offload": "acme-offloae", `"2.1"`: `"2.2"`, "15b3": "15b4", "0x410": "0x411", "0x59444552": "0x59444553", "0x2000": "0x2001", "0x1000": "0x1001",
	} {
		if d := open(t, folder(t, manifest(old, new))).Digest; d == digest {
			t.Errorf("%s for %s: the same digest", new, old)
		}
	}
	for old, new := range map[string]string{"# made by hand": "", "0x410": "1040", "# code": "", `"more/data.bin"`: `"more/./data.bin"`} {
		if d := open(t, folder(t, manifest(old, new))).Digest; d != digest {
			t.Errorf("%q for %q: another digest", new, old)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		reason   error
		key      string
	}{
		"not TOML":           {`name = `, `name `, opaque.ErrSyntax, ""},
		"a key twice":        {`version = "2.1"`, "version = \"2.1\"\nversion = \"2.1\"", opaque.ErrSyntax, "version"},
		"unknown key":        {`version`, `versoin`, opaque.ErrUnknownKey, "versoin"},
		"unknown in segment": {`address`, `adress`, opaque.ErrUnknownKey, "segments.adress"},
		"unknown table":      {"# made by hand", "[host]\ncost = 1\n[x]\n", opaque.ErrUnknownKey, "host"},
		"wrong type":         {`entry = 0x410`, `entry = "0x410"`, opaque.ErrSyntax, "entry"},
		"a fraction":         {`entry = 0x410`, `entry = 1.5`, opaque.ErrSyntax, "entry"},
		"over 64 bits":       {`entry = 0x410`, `entry = 0x10000000000000000`, opaque.ErrSyntax, "entry"},
		"no name":            {`name = "acme-offload"`, ``, opaque.ErrMissing, "name"},
		"empty name":         {`"acme-offload"`, `""`, opaque.ErrValue, "name"},
		"escapes in a name":  {`"acme-offload"`, `"acme\u001b[2J"`, opaque.ErrValue, "name"},
		"long version":       {`"2.1"`, `"` + strings.Repeat("1", 17) + `"`, opaque.ErrValue, "version"},
		"no devices":         {`devices = ["15b3:1017", "1234:7250"]`, `devices = []`, opaque.ErrMissing, "devices"},
		"any and another":    {`"15b3:1017"`, `"any"`, opaque.ErrValue, "devices"},
		"half a device":      {`"15b3:1017"`, `"15b3"`, opaque.ErrValue, "devices"},
		"device of 20 bits":  {`"15b3:1017"`, `"15b3:11017"`, opaque.ErrValue, "devices"},
		"no entry":           {`entry = 0x410`, ``, opaque.ErrMissing, "entry"},
		"entry below zero":   {`entry = 0x410`, `entry = -1`, opaque.ErrValue, "entry"},
		"entry in a gap":     {`entry = 0x410`, `entry = 0x800`, opaque.ErrValue, "entry"},
		"huge entry":         {`entry = 0x410`, `entry = 0x7fffffffffffffff`, opaque.ErrValue, "entry"},
		"ready of all ones":  {`0x59444552`, `0xffffffff`, opaque.ErrValue, "ready"},
		"ready of zero":      {`0x59444552`, `0`, opaque.ErrValue, "ready"},
		"no SRAM":            {`sram = 0x2000`, `sram = 0`, opaque.ErrValue, "sram"},
		"little SRAM":        {`sram = 0x2000`, `sram = 0x1003`, opaque.ErrValue, "sram"},
		"huge SRAM":          {`sram = 0x2000`, `sram = 0x40000000`, opaque.ErrValue, "sram"},
		"no file":            {`file = "text.bin"`, ``, opaque.ErrMissing, "segments[0].file"},
		"no address":         {`address = 0x1000`, ``, opaque.ErrMissing, "segments[1].address"},
		"address":            {`address = 0x1000`, `address = 0x4000000`, opaque.ErrValue, "segments[1].address"},
		"overlap":            {`address = 0x1000`, `address = 0x58f`, opaque.ErrValue, "segments[1].address"},
		"outside":            {`"text.bin"`, `"../text.bin"`, opaque.ErrValue, "segments[0].file"},
		"outside and back":   {`"text.bin"`, `"more/../../x/text.bin"`, opaque.ErrValue, "segments[0].file"},
		"absolute":           {`"text.bin"`, `"/etc/passwd"`, opaque.ErrValue, "segments[0].file"},
		"empty path":         {`"text.bin"`, `""`, opaque.ErrValue, "segments[0].file"},
		"zero in a path":     {`"text.bin"`, `"text.bin\u0000"`, opaque.ErrValue, "segments[0].file"},
		"not there":          {`"text.bin"`, `"txt.bin"`, opaque.ErrSegment, "segments[0].file"},
		"a folder":           {`"more/data.bin"`, `"more"`, opaque.ErrSegment, "segments[1].file"},
		"other contents":     {`"more/data.bin"`, `"text.bin"`, opaque.ErrSegment, "segments[1].file"},
		"half a hash":        {fmt.Sprintf("%x", sha256.Sum256(data)), "0123", opaque.ErrValue, "segments[1].sha256"},
		"wrong hash":         {fmt.Sprintf("%x", sha256.Sum256(data)), strings.Repeat("0", 64), opaque.ErrSegment, "segments[1].file"},
		"half a signature":   {"[[segments]] # code", "[signature]\nkey = \"0123456789abcdef\"\n[[segments]]", opaque.ErrMissing, "signature.value"},
		"short signature":    {"[[segments]] # code", "[signature]\nkey = \"0123456789abcdef\"\nvalue = \"00\"\n[[segments]]", opaque.ErrValue, "signature.value"},
		"no key":             {"[[segments]] # code", "[signature]\nkey = \"x\"\nvalue = \"00\"\n[[segments]]", opaque.ErrValue, "signature.key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := folder(t, manifest(c.old, c.new))
			img, err := opaque.Open(file)
			var e *opaque.Error
			if !errors.As(err, &e) || !errors.Is(err, c.reason) || e.Key != c.key || e.File != file || img != nil {
				t.Errorf("%v; want %v of %q", err, c.reason, c.key)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\x00\n") {
				t.Errorf("the error has control characters: %q", err)
			}
		})
	}
}

// TestFiles: what a file may not be.
func TestFiles(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a link out": func(dir string) error { return os.Symlink("/etc/hostname", filepath.Join(dir, "text.bin")) },
		"a link up": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(filepath.Dir(dir), "text"), text, 0o600), os.Symlink("../text", filepath.Join(dir, "text.bin")))
		},
		"a pipe": func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "text.bin"), 0o600) },
		"empty":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "text.bin"), nil, 0o600) },
		"too large": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "text.bin"), make([]byte, opaque.MaxSegment+1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := folder(t, manifest("name", "name"))
			dir := filepath.Dir(file)
			if err := os.Remove(filepath.Join(dir, "text.bin")); err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := opaque.Open(file); !errors.Is(err, opaque.ErrSegment) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := opaque.Open(filepath.Join(t.TempDir(), "none.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no manifest: %v", err)
	}
	if _, err := opaque.Parse("x", make([]byte, opaque.MaxManifest+1)); !errors.Is(err, opaque.ErrSyntax) {
		t.Errorf("a huge manifest: %v", err)
	}
	many := manifest("name", "name") + strings.Repeat("[[segments]]\nfile = \"x\"\naddress = 1\nsha256 = \""+strings.Repeat("0", 64)+"\"\n", opaque.MaxSegments)
	if _, err := opaque.Parse("x", []byte(many)); !errors.Is(err, opaque.ErrValue) {
		t.Errorf("many segments: %v", err)
	}
}

func TestSignAndVerify(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	dir := t.TempDir()
	public, err := firmware.EncodePublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "acme.pub"), public)
	ring, err := firmware.OpenKeyRing(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := folder(t, manifest("name", "name"))
	if _, err := open(t, file).Verify(ring); !errors.Is(err, firmware.ErrUnsigned) {
		t.Errorf("not signed: %v", err)
	}
	for _, k := range []ed25519.PrivateKey{other, key, key} {
		signed, err := opaque.Sign(file, k)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(signed, []byte("# made by hand\n")) || bytes.Count(signed, []byte("[signature]")) != 1 {
			t.Errorf("signed:\n%s", signed)
		}
		write(t, file, signed)
		found, err := open(t, file).Verify(ring)
		if k.Equal(key) && (err != nil || found.File != "acme.pub") || k.Equal(other) && !errors.Is(err, firmware.ErrUnknownKey) {
			t.Errorf("%+v, %v", found, err)
		}
	}
	// Changed afterwards, the signature is of something else.
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, bytes.Replace(b, []byte("0x410"), []byte("0x414"), 1))
	if _, err := open(t, file).Verify(ring); !errors.Is(err, firmware.ErrSignature) {
		t.Errorf("changed: %v", err)
	}
	// A signature that cannot be taken out is not doubled.
	write(t, file, []byte(manifest("name", "signature = {key = \"0123456789abcdef\", value = \""+strings.Repeat("0", 128)+"\"}\nname")))
	if _, err := opaque.Sign(file, key); !errors.Is(err, opaque.ErrSyntax) {
		t.Errorf("an inline signature: %v", err)
	}
}
