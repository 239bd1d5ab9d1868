package fwcmd_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
)

// program is what status --json and others say.
type program struct {
	State, Fault, Name, Version, Digest string
	BuildID                             string `json:"build_id"`
	Slot                                *int
	Previous                            *int `json:"previous_slot"`
	Hooks                               []struct {
		Hook         string
		Installed    bool
		Runs, Faults uint64
		WorstCase    int `json:"worst_case_instructions"`
	}
}

type loaded struct {
	Device, Backend, Name, Version, Digest string
	Bytes                                  int `json:"image_bytes"`
	Signature                              struct{ State, Key, Owner string }
	Hooks                                  []hook
	Program                                program
}

func statusOf(t *testing.T, device string) program {
	t.Helper()
	return decoded[struct{ Program program }](t, "fw", "status", "--device", device).Program
}

// TestLoadAndRollBack: programs stay while processes come and go.
func TestLoadAndRollBack(t *testing.T) {
	device, _ := plug(t)
	if p := statusOf(t, device); p.State != "built-in" || p.Slot != nil || p.Name != "" || len(p.Hooks) != 5 {
		t.Fatalf("a new NIC: %+v", p)
	}
	should.Refuse(run(t, "fw", "rollback", "--device", device))(t, load.ErrNoPrevious, "rollback of nothing")
	first := decoded[loaded](t, "load", "--device", device, "--allow-unsigned", "image:amp")
	should.Hold(t, first.Name == "amp" && first.Backend == "group" && first.Device != "" && first.Bytes != 0 && first.Signature.State == "unsigned" &&
		len(first.Hooks) == 2 && first.Hooks[0].WorstCase != 0, "%+v", first)
	if p := first.Program; p.State != "running" || p.Name != "amp" || p.Digest != first.Digest || p.Slot == nil || p.Previous != nil {
		t.Errorf("%+v", p)
	}
	shown := decoded[shown](t, "fw", "show", "image:amp")
	if p := statusOf(t, device); p.State != "running" || p.Digest != shown.Digest || p.BuildID != shown.BuildID || !p.Hooks[0].Installed ||
		p.Hooks[0].WorstCase != shown.Hooks[0].WorstCase || p.Hooks[4].Installed {
		t.Errorf("%+v; the image is %+v", p, shown)
	}
	second := decoded[loaded](t, "load", "--device", device, "--allow-unsigned", "image:acl")
	if p := second.Program; p.Name != "acl" || *p.Slot == *first.Program.Slot || *p.Previous != *first.Program.Slot {
		t.Errorf("%+v", p)
	}
	for _, want := range []string{"amp", "acl", "amp"} {
		if p := decoded[struct{ Program program }](t, "fw", "rollback", "--device", device).Program; p.Name != want || p.State != "running" {
			t.Fatalf("rolled back to %+v, want %s", p, want)
		}
	}
	out := ok(t, "fw", "status", "--device", device)
	for _, want := range []string{"running\n", "amp\n", first.Digest, "pulse/tx", "worst_case_instructions"} {
		should.Contain(t, out, want, "status lacks")
	}
	out = ok(t, "load", "--device", device, "--allow-unsigned", "image:count")
	for _, want := range []string{"count\n", "  state  unsigned", "slot", "filter/rx", "worst_case_instructions"} {
		should.Contain(t, out, want, "load lacks")
	}
	if p := decoded[struct{ Program program }](t, "fw", "unload", "--device", device).Program; p.State != "built-in" || p.Name != "" {
		t.Errorf("unloaded: %+v", p)
	}
	if p := statusOf(t, device); p.State != "built-in" || p.Digest != "" {
		t.Errorf("unloaded: %+v", p)
	}
}

// keyed are images and key rings for TestTrust.
type keyed struct{ unsigned, signed, other, ring, empty, revoking string }

func newKeyed(t *testing.T) (k keyed) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	k = keyed{in("unsigned"), in("signed"), in("other"), in("ring"), in("empty"), in("revoking")}
	for _, d := range []string{k.ring, k.empty, k.revoking} {
		must.OK(t, os.Mkdir(d, 0o700))
	}
	ok(t, "fw", "build", "--image", "amp", "--output", k.unsigned)
	ok(t, "fw", "build", "--image", "count", "--output", k.other)
	key := decoded[struct{ Key string }](t, "fw", "keygen", filepath.Join(k.ring, "me"))
	ok(t, "fw", "sign", k.unsigned, "--key", filepath.Join(k.ring, "me.pem"), "--output", k.signed)
	ok(t, "fw", "sign", k.other, "--key", filepath.Join(k.ring, "me.pem"))
	public := must.Get(os.ReadFile(filepath.Join(k.ring, "me.pub")))(t)
	write(t, filepath.Join(k.revoking, "me.pub"), public)
	write(t, filepath.Join(k.revoking, "revoked"), []byte(key.Key+"\n"))
	// The signature of the one image in the other.
	a := must.Get(firmware.Open(k.unsigned))(t)
	b := must.Get(firmware.Open(k.other))(t)
	s := must.Get(firmware.Open(k.signed))(t)
	must.Hold(t, a.Digest != b.Digest && bytes.Count(b.Bytes(), b.Signature.Bytes[:]) == 1, "the images are no use for this test")
	write(t, k.other, bytes.Replace(b.Bytes(), b.Signature.Bytes[:], s.Signature.Bytes[:], 1))
	return k
}

// TestTrust: what nobody vouches for goes into no NIC but emulated ones.
func TestTrust(t *testing.T) {
	k := newKeyed(t)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(t.TempDir(), "none"))
	const real, emulated = false, true
	for name, c := range map[string]struct {
		emulated bool
		args     []string
		want     error
		state    string
	}{
		"unsigned":                       {real, []string{k.unsigned}, firmware.ErrUnsigned, ""},
		"shipped":                        {real, []string{"image:amp"}, firmware.ErrUnsigned, ""},
		"unsigned, with keys":            {real, []string{k.unsigned, "--keys", k.ring}, firmware.ErrUnsigned, ""},
		"unsigned, allowed":              {real, []string{k.unsigned, "--allow-unsigned"}, nil, "unsigned"},
		"unsigned, emulated":             {emulated, []string{k.unsigned}, nil, "unsigned"},
		"signed":                         {real, []string{k.signed, "--keys", k.ring}, nil, "valid"},
		"signed, emulated":               {emulated, []string{k.signed, "--keys", k.ring}, nil, "valid"},
		"unknown key":                    {real, []string{k.signed, "--keys", k.empty}, firmware.ErrUnknownKey, ""},
		"unknown key, allowed":           {real, []string{k.signed, "--keys", k.empty, "--allow-unsigned"}, nil, "unknown key"},
		"unknown key, emulated":          {emulated, []string{k.signed, "--keys", k.empty}, nil, "unknown key"},
		"revoked key":                    {real, []string{k.signed, "--keys", k.revoking}, firmware.ErrRevoked, ""},
		"revoked key, allowed":           {real, []string{k.signed, "--keys", k.revoking, "--allow-unsigned"}, nil, "revoked key"},
		"signature of another":           {real, []string{k.other, "--keys", k.ring}, firmware.ErrSignature, ""},
		"signature of another, allowed":  {real, []string{k.other, "--keys", k.ring, "--allow-unsigned"}, firmware.ErrSignature, ""},
		"signature of another, emulated": {emulated, []string{k.other, "--keys", k.ring}, firmware.ErrSignature, ""},
		"no key ring":                    {real, []string{k.signed}, fs.ErrNotExist, ""},
		"no key ring, emulated":          {emulated, []string{k.signed}, nil, "not verified"},
		"no such key ring, allowed":      {real, []string{k.signed, "--keys", filepath.Join(k.ring, "none"), "--allow-unsigned"}, fs.ErrNotExist, ""},
		"no such key ring, not needed":   {real, []string{k.unsigned, "--keys", filepath.Join(k.ring, "none"), "--allow-unsigned"}, nil, "unsigned"},
	} {
		t.Run(name, func(t *testing.T) {
			device, card := plug(t)
			if c.emulated {
				device = "emu:"
			}
			args := append([]string{"load", "--device", device}, c.args...)
			if c.want == nil {
				r := decoded[loaded](t, args...)
				should.Hold(t, r.Signature.State == c.state && r.Program.State == "running" && r.Program.Name == "amp", "%+v", r)
				return
			}
			out, err := run(t, args...)
			should.Hold(t, errors.Is(err, c.want) && out == "", "%q, %v; want %v", out, err, c.want)
			should.Be(t, card.written.Load(), 0, "the device was written to times")
			should.Be(t, card.opened.Load(), 0, "the device was opened times")
		})
	}
}

// TestTrustOfBackend: what counts is what opens the device, not its address.
func TestTrustOfBackend(t *testing.T) {
	device, card := plug(t)
	device = strings.Replace(device, "card:", "emulator:", 1)
	out, err := run(t, "load", "--device", device, "image:amp")
	should.Hold(t, errors.Is(err, firmware.ErrUnsigned) && out == "" && card.written.Load() == 0, "%q, %v, %d writes", out, err, card.written.Load())
	card.backend = "vfio-user"
	ok(t, "load", "--device", device, "image:amp")
}

// TestBadImages: what is no image for the NIC is refused before the NIC is touched.
func TestBadImages(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ok(t, "fw", "build", "--image", "count", "--output", in("good"))
	ok(t, "fw", "build", "--image", "amp", "--for", "15b3:1017", "--output", in("elsewhere"))
	good := must.Get(os.ReadFile(in("good")))(t)
	write(t, in("truncated"), good[:len(good)*2/3])
	write(t, in("text"), []byte("not an image"))
	write(t, in("empty"), nil)
	write(t, in("endless"), endless(t))
	var refusal *firmware.Refusal
	for name, c := range map[string]struct {
		image  string
		want   error
		opened int32
	}{
		"truncated":         {in("truncated"), nil, 0},
		"text":              {in("text"), nil, 0},
		"empty":             {in("empty"), nil, 0},
		"a folder":          {dir, nil, 0},
		"not there":         {in("none"), fs.ErrNotExist, 0},
		"shipped, unknown":  {"image:fail", option.ErrBad, 0},
		"shipped, unmarked": {"amp", fs.ErrNotExist, 0},
		"endless":           {in("endless"), nil, 0},
		"for another NIC":   {in("elsewhere"), load.ErrDevice, 1},
	} {
		t.Run(name, func(t *testing.T) {
			device, card := plug(t)
			out, err := run(t, "load", "--device", device, "--allow-unsigned", c.image)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || out != "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, %v; want %v", out, err, c.want)
			}
			should.Be(t, errors.As(err, &refusal), (name == "endless"), "%v", err)
			should.Be(t, card.opened.Load(), c.opened, "the device was opened times")
			should.Be(t, card.written.Load(), 0, "the device was written to times")
			p := statusOf(t, device)
			should.Hold(t, p.State == "built-in", "%+v", p)
		})
	}
}

// TestFlippedBits: an image with any bit turned over is refused, or is the same
// image still: the file has parts that nothing is loaded from.
func TestFlippedBits(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	ok(t, "fw", "build", "--image", "count", "--output", image)
	good := must.Get(os.ReadFile(image))(t)
	device, _ := plug(t)
	want := decoded[loaded](t, "load", "--device", device, "--allow-unsigned", image).Digest
	refused := 0
	for at := 0; at < len(good); at += 1 + len(good)/150 {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		write(t, image, bad)
		_, err := run(t, "load", "--device", device, "--allow-unsigned", image)
		if err != nil {
			refused++
		}
		p := statusOf(t, device)
		must.Hold(t, p.Digest == want && p.State == "running", "bit of byte %d: %v; now %+v", at, err, p)
	}
	t.Logf("%d refused", refused)
	should.Hold(t, refused != 0, "nothing was refused")
}

// TestMaps reads and writes maps of the program that runs.
func TestMaps(t *testing.T) {
	device, _ := plug(t)
	ok(t, "load", "--device", device, "--allow-unsigned", "image:ipt")
	type entry struct{ Key, Value string }
	type report struct {
		Map struct {
			Name, Type string
			Entries    int
		}
		Entries []entry
	}
	ok(t, "fw", "map", "--device", device, "image:ipt", "entries", "set", "07000000", "0x0100000003000000")
	r := decoded[report](t, "fw", "map", "--device", device, "image:ipt", "entries")
	should.Hold(t, r.Map.Type == "array" && r.Map.Entries == 256 && len(r.Entries) == 256, "%+v", r)
	set := 0
	for _, e := range r.Entries {
		if e.Value != "0000000000000000" {
			set++
		}
	}
	should.Be(t, set, 1, "entries are set")
	// The next process finds them so, until the image is loaded again.
	for _, want := range []string{"0100000003000000", "0000000000000000"} {
		should.Be(t, ok(t, "fw", "map", "--device", device, "image:ipt", "entries", "get", "07000000"), "07000000 "+want+"\n")
		ok(t, "load", "--device", device, "--allow-unsigned", "image:ipt")
	}
	ok(t, "load", "--device", device, "--allow-unsigned", "image:acl")
	key := strings.Repeat("ab", 40)
	value := strings.Repeat("01", 16)
	for _, c := range [][]string{{"", "list"}, {"", "set", key, value}, {key + " " + value + "\n", "list"}, {"", "delete", key}, {"", "list"}} {
		should.Be(t, ok(t, append([]string{"fw", "map", "--device", device, "image:acl", "rules"}, c[1:]...)...), c[0])
	}
	for name, c := range map[string]struct {
		args []string
		want error
	}{
		"another image":     {[]string{"image:ipt", "entries"}, fwcmd.ErrOtherImage},
		"no such map":       {[]string{"image:acl", "roles"}, option.ErrBad},
		"no such operation": {[]string{"image:acl", "rules", "destroy"}, option.ErrBad},
		"no value":          {[]string{"image:acl", "rules", "set", key}, option.ErrBad},
		"not hexadecimal":   {[]string{"image:acl", "rules", "get", "xyz"}, option.ErrBad},
		"short key":         {[]string{"image:acl", "rules", "get", "ab"}, load.ErrSize},
		"short value":       {[]string{"image:acl", "rules", "set", key, "ab"}, load.ErrSize},
		"no such key":       {[]string{"image:acl", "rules", "get", key}, load.ErrNoEntry},
		"delete nothing":    {[]string{"image:acl", "rules", "delete", key}, load.ErrNoEntry},
	} {
		out, err := run(t, append([]string{"fw", "map", "--device", device}, c.args...)...)
		should.Hold(t, errors.Is(err, c.want) && out == "", "%s: %q, %v; want %v", name, out, err, c.want)
	}
	ok(t, "load", "--device", device, "--allow-unsigned", "image:amp")
	should.Refuse(run(t, "fw", "map", "--device", device, "image:amp", "rules"))(t, load.ErrMap, "of an image without maps")
	ok(t, "fw", "unload", "--device", device)
	should.Refuse(run(t, "fw", "map", "--device", device, "image:acl", "rules"))(t, fwcmd.ErrOtherImage, "nothing runs")
}
