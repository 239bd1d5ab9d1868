package fwcmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/fwcmd"
)

const object, endlessObject = "../../../../firmware-loader/testdata/everything.o", "../../../../firmware-loader/testdata/endless.o"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endless is an image that no NIC takes.
func endless(t *testing.T) []byte {
	t.Helper()
	b := must.Get(os.ReadFile(endlessObject))(t)
	s := must.Get(firmware.Build(b, firmware.Meta{}))(t)
	return s.Bytes()
}

// run executes "trapeze ARGS" and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "trapeze", SilenceUsage: true, SilenceErrors: true}
	var out, errs bytes.Buffer
	env := command.Env{Stdout: &out, Stderr: io.Discard}
	root.PersistentFlags().BoolVar(&env.JSON, "json", false, "")
	root.AddCommand(fwcmd.Commands(&env)...)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	should.Hold(t, errs.Len() == 0, "%v: on stderr: %s", args, &errs)
	return out.String(), err
}

func ok(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	must.OK(t, err, "%v", args)
	return out
}

// decoded runs a command with --json and decodes the one object.
func decoded[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(ok(t, append(args, "--json")...)))
	must.OK(t, d.Decode(&v))
	should.Hold(t, !d.More(), "%v prints more than one object", args)
	return v
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(name, b, 0o600))
}

type shown struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	BuildID   string `json:"build_id"`
	Device    string `json:"device"`
	SRAM      int    `json:"sram_bytes"`
	Digest    string `json:"digest"`
	Built     bool   `json:"built"`
	Signature struct {
		State string `json:"state"`
		Key   string `json:"key"`
		Owner string `json:"owner"`
	} `json:"signature"`
	Sections []struct {
		Name  string `json:"name"`
		Bytes int    `json:"bytes"`
		Role  string `json:"role"`
	} `json:"sections"`
	Hooks []hook `json:"hooks"`
	Maps  []any  `json:"maps"`
}

type hook struct {
	Hook         string `json:"hook"`
	Instructions int    `json:"instructions"`
	WorstCase    int    `json:"worst_case_instructions"`
	Budget       int    `json:"budget_instructions"`
	Refusal      *struct {
		Instruction int    `json:"instruction"`
		Line        string `json:"line"`
		Reason      string `json:"reason"`
	} `json:"refusal"`
}

// TestFromObjectToSignedImage is what the help shows, in order.
func TestFromObjectToSignedImage(t *testing.T) {
	dir := t.TempDir()
	image, keys := filepath.Join(dir, "image"), filepath.Join(dir, "keys")
	must.OK(t, os.Mkdir(keys, 0o700))
	made := decoded[struct {
		File, Name, Version, Digest string
		Bytes                       int
		SRAM                        int    `json:"sram_bytes"`
		BuildID                     string `json:"build_id"`
	}](t, "fw", "build", "--from", object, "--version", "7.0", "--build-id", "c0ffee", "--for", "1234:7250", "--output", image)
	should.Hold(t, made.Name == "everything" && made.Version == "7.0" && made.BuildID == "c0ffee"+strings.Repeat("0", 34) && made.SRAM != 0, "%+v", made)
	if st, err := os.Stat(image); err != nil || int(st.Size()) != made.Bytes {
		t.Errorf("%v, %v", st, err)
	}

	out := ok(t, "fw", "check", image)
	for _, want := range []string{"hook ", "pulse/tx ", "filter/rx ", " 512 ", " 8192 ", "accepted  true"} {
		should.Contain(t, out, want, "check lacks")
	}
	s := decoded[shown](t, "fw", "show", image)
	should.Hold(t, s.Version == "7.0" && s.Device == "1234:7250" && s.Digest == made.Digest && s.Built && s.Signature.State == "unsigned", "%+v", s)
	if len(s.Hooks) != 5 || len(s.Maps) != 5 || len(s.Sections) < 10 || s.Hooks[0].WorstCase == 0 || s.Hooks[0].Budget != abi.PulseBudget {
		t.Errorf("%+v", s)
	}

	generated := decoded[struct{ Private, Public, Key string }](t, "fw", "keygen", filepath.Join(keys, "me"))
	if st, err := os.Stat(generated.Private); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v, %v", st, err)
	}
	before := must.Get(os.ReadFile(image))(t)
	other := filepath.Join(dir, "signed")
	ok(t, "fw", "sign", image, "--key", generated.Private, "--output", other)
	if after, err := os.ReadFile(image); err != nil || !bytes.Equal(before, after) {
		t.Errorf("--output has changed the input: %v", err)
	}
	ok(t, "fw", "sign", image, "--key", generated.Private)
	a, err1 := os.ReadFile(image)
	b, err2 := os.ReadFile(other)
	should.Hold(t, err1 == nil && err2 == nil && bytes.Equal(a, b), "signed in place, it is another file: %v, %v", err1, err2)
	verified := decoded[struct{ Key, Owner, Digest string }](t, "fw", "verify", image, "--keys", keys)
	should.Hold(t, verified.Key == generated.Key && verified.Owner == "me.pub" && verified.Digest == made.Digest, "%+v", verified)
	for name, c := range map[string]struct {
		args  []string
		state string
	}{
		"known":      {[]string{"--keys", keys}, "valid"},
		"unknown":    {[]string{"--keys", t.TempDir()}, "unknown key"},
		"nobody's":   {nil, "not verified"},
		"of another": {[]string{"--keys", keys, "--json=false"}, ""},
	} {
		t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "none"))
		if c.state == "" {
			should.Contain(t, ok(t, append([]string{"fw", "show", image}, c.args...)...), "  state     valid\n", "show")
			continue
		}
		if s := decoded[shown](t, append([]string{"fw", "show", image}, c.args...)...); s.Signature.State != c.state || s.Signature.Key != generated.Key {
			t.Errorf("%s: %+v", name, s.Signature)
		}
	}
	write(t, filepath.Join(keys, "revoked"), []byte(generated.Key+"\n"))
	if s := decoded[shown](t, "fw", "show", image, "--keys", keys); s.Signature.State != "revoked key" {
		t.Errorf("revoked: %+v", s.Signature)
	}
	should.Refuse(run(t, "fw", "verify", image, "--keys", keys))(t, firmware.ErrRevoked, "revoked")

	listing := decoded[struct{ Lines []string }](t, "fw", "disasm", image)
	text := ok(t, "fw", "disasm", image)
	should.Hold(t, strings.Join(listing.Lines, "\n")+"\n" == text && strings.Contains(text, "everything.c:"), "disasm:\n%s", text)
}

// TestShipped builds all images that come with trapeze.
func TestShipped(t *testing.T) {
	dir := t.TempDir()
	for _, name := range firmware.ShippedNames() {
		file := filepath.Join(dir, name)
		ok(t, "fw", "build", "--image", name, "--output", file)
		// As a file and by name they are the same to all that take both.
		if a, b := ok(t, "fw", "disasm", file), ok(t, "fw", "disasm", "image:"+name); a != b || a == "" {
			t.Errorf("disasm %s: from the file:\n%s\nby name:\n%s", name, a, b)
		}
		if s := decoded[shown](t, "fw", "show", file); s.Name != name || len(s.Hooks) == 0 || s.Hooks[0].WorstCase == 0 || s.Device != "any" {
			t.Errorf("%+v", s)
		}
	}
	again := filepath.Join(dir, "again")
	ok(t, "fw", "build", "--image", firmware.ShippedNames()[0], "--version", "9.9", "--output", again)
	if s := decoded[shown](t, "fw", "show", again); s.Name != firmware.ShippedNames()[0] || s.Version != "9.9" {
		t.Errorf("%+v", s)
	}
}

// TestRefusedProgram: an image that no NIC takes is not built; built elsewhere, it
// is shown and refused.
func TestRefusedProgram(t *testing.T) {
	image := filepath.Join(t.TempDir(), "endless")
	write(t, image, endless(t))
	built := filepath.Join(t.TempDir(), "built")
	var refusal *firmware.Refusal
	if _, err := run(t, "fw", "build", "--from", image, "--output", built); !errors.As(err, &refusal) || refusal.Hook != abi.PulseTx {
		t.Fatalf("build: %v", err)
	}
	should.Refuse(os.Stat(built))(t, fs.ErrNotExist, "a file was written")
	out, err := run(t, "fw", "check", image, "--json")
	var v struct {
		Accepted bool   `json:"accepted"`
		Hooks    []hook `json:"hooks"`
	}
	if !errors.As(err, &refusal) || json.Unmarshal([]byte(out), &v) != nil || v.Accepted || len(v.Hooks) != 1 || v.Hooks[0].Refusal == nil {
		t.Fatalf("check: %v, %s", err, out)
	}
	r := v.Hooks[0].Refusal
	should.Hold(t, strings.HasSuffix(r.Line, "while (round != 1)") && r.Reason != "", "%+v", r)
	if out, err := run(t, "fw", "check", image); err == nil || !strings.Contains(out, "refusal") {
		t.Errorf("check: %v\n%s", err, out)
	}
	should.Contain(t, ok(t, "fw", "show", image), "refusal", "show")
}

func TestRefusedCommands(t *testing.T) {
	dir := t.TempDir()
	image, there := filepath.Join(dir, "image"), filepath.Join(dir, "there")
	ok(t, "fw", "build", "--from", object, "--output", image)
	ok(t, "fw", "keygen", filepath.Join(dir, "k"))
	write(t, there, []byte("mine"))
	for name, c := range map[string]struct {
		args []string
		want error
		says string
	}{
		"build without input":   {[]string{"build", "--output", "x"}, option.ErrBad, "--from"},
		"build of two":          {[]string{"build", "--from", object, "--image", "amp", "--output", "x"}, nil, "[from image]"},
		"no such image":         {[]string{"build", "--image", "fail", "--output", "x"}, option.ErrBad, "amp"},
		"bad device":            {[]string{"build", "--from", object, "--output", "x", "--for", "12:34"}, option.ErrBad, "vendor:device"},
		"bad build ID":          {[]string{"build", "--from", object, "--output", "x", "--build-id", "xyz"}, option.ErrBad, "hexadecimal"},
		"long build ID":         {[]string{"build", "--from", object, "--output", "x", "--build-id", strings.Repeat("00", 21)}, option.ErrBad, "40"},
		"bad name":              {[]string{"build", "--from", object, "--output", "x", "--name", "a/b"}, firmware.ErrNote, "letters"},
		"no object":             {[]string{"build", "--from", filepath.Join(dir, "none"), "--output", "x"}, fs.ErrNotExist, ""},
		"not an object":         {[]string{"build", "--from", there, "--output", "x"}, firmware.ErrFormat, "there"},
		"output is there":       {[]string{"build", "--from", object, "--output", there}, fs.ErrExist, "--force"},
		"output is a folder":    {[]string{"build", "--from", object, "--output", dir, "--force"}, nil, "directory"},
		"check of text":         {[]string{"check", there}, firmware.ErrFormat, ""},
		"check of a device":     {[]string{"check", "/dev/zero"}, nil, "regular"},
		"sign with public key":  {[]string{"sign", image, "--key", filepath.Join(dir, "k.pub")}, firmware.ErrKey, "k.pub"},
		"sign an object":        {[]string{"sign", object, "--key", filepath.Join(dir, "k.pem"), "--output", "x"}, firmware.ErrNote, "fw build"},
		"sign over a file":      {[]string{"sign", image, "--key", filepath.Join(dir, "k.pem"), "--output", there}, fs.ErrExist, "--force"},
		"verify unsigned":       {[]string{"verify", image, "--keys", dir}, firmware.ErrUnsigned, "fw sign"},
		"verify without keys":   {[]string{"verify", image, "--keys", filepath.Join(dir, "none")}, fs.ErrNotExist, ""},
		"show with broken keys": {[]string{"show", image, "--keys", filepath.Join(dir, "none")}, nil, ""},
		"key that is there":     {[]string{"keygen", filepath.Join(dir, "k")}, fs.ErrExist, "k.pem"},
		"key without a name":    {[]string{"keygen", dir + "/"}, option.ErrBad, "NAME"},
		"disasm of no image":    {[]string{"disasm", "image:none"}, option.ErrBad, "flow-steer"},
		"disasm of a name":      {[]string{"disasm", "amp"}, fs.ErrNotExist, "image:amp"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, append([]string{"fw"}, c.args...)...)
			if name == "show with broken keys" { // of an unsigned image, nobody asks
				should.OK(t, err)
				return
			}
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || out != "" {
				t.Errorf("%v, %q; want %v that says %q", err, out, c.want, c.says)
			}
			should.Hold(t, !strings.Contains(err.Error(), "\n"), "more than one line: %v", err)
		})
	}
	if b, err := os.ReadFile(there); err != nil || string(b) != "mine" {
		t.Errorf("a file was replaced: %q, %v", b, err)
	}
	entries, err := os.ReadDir(dir)
	should.Hold(t, err == nil && len(entries) == 4, "left over: %v, %v", entries, err)
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused command has written its output")
	}
}
