package main

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// TestCheckOut: a tag or --snapshot is asked for, and what is not committed does not come along.
func TestCheckOut(t *testing.T) {
	repository := t.TempDir()
	t.Chdir(repository)
	git := func(args ...string) string {
		t.Helper()
		out, err := command(t.Context(), repository, nil, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.invalid"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile("file", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("first")
	git("add", "file")
	git("commit", "-q", "-m", "first")
	write("second")
	git("commit", "-q", "-a", "-m", "second")
	git("tag", "other")
	git("tag", "-a", "-m", "a version", "v0.2.0")
	write("not committed")

	for _, tt := range []struct {
		commit   string
		snapshot bool
		has      string // of the file
		fails    string
	}{
		{commit: "HEAD", has: "second"},
		{commit: "v0.2.0", has: "second"},
		{commit: "other", has: "second"},
		{commit: "HEAD~1", fails: "has no tag of a version"},
		{commit: "HEAD~1", snapshot: true, has: "first"},
		{commit: "HEAD", snapshot: true, has: "second"},
		{commit: "v0.3.0", fails: "v0.3.0"},
		{commit: "--help", snapshot: true, fails: "--help"},
	} {
		dir := t.TempDir()
		r := &release{source: filepath.Join(dir, "source"), build: filepath.Join(dir, "build"), output: filepath.Join(dir, "output")}
		err := r.checkOut(t.Context(), tt.commit, tt.snapshot)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s, snapshot %v: error %v, want %q", tt.commit, tt.snapshot, err, tt.fails)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s, snapshot %v: %v", tt.commit, tt.snapshot, err)
		}
		text, err := os.ReadFile(filepath.Join(r.source, "file"))
		if err != nil || string(text) != tt.has {
			t.Errorf("%s: the clone has %q, %v, want %q", tt.commit, text, err, tt.has)
		}
		if want := git("rev-parse", tt.commit+"^{commit}"); r.commit != want || r.date.IsZero() {
			t.Errorf("%s: commit %s of %v, want %s", tt.commit, r.commit, r.date, want)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":                             "0.1.0",
		"v0.1.0-rc.1":                        "0.1.0~rc.1",
		"v0.0.0-20261125000627-f7872717cadb": "0.0.0~20261125000627.f7872717cadb",
		"v0.1.0+dirty":                       "",
		"(devel)":                            "",
		"":                                   "",
	} {
		got, err := packageVersion(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", version, got, err, want)
		}
	}
}

// TestToolsFirst: .ci/release names all that is missing before it does anything, for the architectures that are asked for.
func TestToolsFirst(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"bash", "cat", "uname", "git"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	foreign := "gcc-aarch64-linux-gnu"
	if runtime.GOARCH == "arm64" {
		foreign = "gcc-x86-64-linux-gnu"
	}
	for _, tt := range []struct {
		args  []string
		names []string
		not   string
		code  int
	}{
		{nil, []string{"Go (", "gcc (gcc)", "make (make)", "(libfabric-dev)", "(" + foreign + ")"}, "git", 1},
		{[]string{"--arch", runtime.GOARCH}, []string{"gcc (gcc)", "make (make)"}, foreign, 1},
		{[]string{"--arch=" + runtime.GOARCH}, []string{"gcc (gcc)", "make (make)"}, foreign, 1},
		{[]string{"--arch", "riscv64"}, []string{"Usage:"}, "missing", 2},
		{[]string{"--fast"}, []string{"Usage:"}, "missing", 2},
	} {
		output := filepath.Join(t.TempDir(), "output")
		c := exec.CommandContext(t.Context(), "bash", append([]string{"../../.ci/release", output}, tt.args...)...)
		c.Env = []string{"PATH=" + folder}
		said, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tt.code {
			t.Errorf("%v: %v: %s", tt.args, err, said)
		}
		for _, name := range tt.names {
			if !strings.Contains(string(said), name) {
				t.Errorf("%v: it does not name %q: %s", tt.args, name, said)
			}
		}
		if strings.Contains(string(said), tt.not) && tt.code == 1 {
			t.Errorf("%v: it names %q: %s", tt.args, tt.not, said)
		}
		if _, err := os.Stat(output); err == nil {
			t.Errorf("%v: it has begun", tt.args)
		}
	}
}

// unpacked reads a file that gzip has packed.
func unpacked(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAgentFile: agent.toml(5) has each key that the agent reads, and what it means.
func TestAgentFile(t *testing.T) {
	r := &release{source: "../..", build: t.TempDir(), version: "0.1.0", date: time.Unix(0, 0)}
	if err := r.agentFile(); err != nil {
		t.Fatal(err)
	}
	page := unpacked(t, filepath.Join(r.documents("trapeze"), "usr/share/man/man5/agent.toml.5.gz"))
	config, err := os.ReadFile("../../tools/trapeze/internal/agent/config.go")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`toml:"([^"]+)"`).FindAllStringSubmatch(string(config), -1)
	if len(keys) < 20 {
		t.Errorf("only %d keys", len(keys))
	}
	for _, key := range keys {
		if key[1] != "nic" && key[1] != "grant" && !strings.Contains(page, `\fB`+key[1]+`\fR`) {
			t.Errorf("the page has no key %s", key[1])
		}
	}
	for _, text := range []string{".TH AGENT.TOML 5", "Unless given: 16", `[nic.NAME]`, "The first grant that fits", "[[grant]]"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	for _, text := range []string{"|", "Unless given: \n", "](", ".md\\fP", "What is protected"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

// TestFormal: Debian gets a changelog of its own form, RPM the licence in full.
func TestFormal(t *testing.T) {
	r := &release{source: "../..", build: t.TempDir(), version: "0.1.0", date: time.Unix(0, 0).UTC()}
	for _, format := range []string{"deb", "rpm"} {
		root, err := r.formal("libvipl1", format)
		if err != nil {
			t.Fatal(err)
		}
		licence, err := os.ReadFile(filepath.Join(root, "usr/share/doc/libvipl1/copyright"))
		if full := strings.Contains(string(licence), "TERMS AND CONDITIONS"); err != nil || full != (format == "rpm") {
			t.Errorf("%s: the licence in full is %v, %v", format, full, err)
		}
	}
	// A folder may be in two roots of a package, and is listed once.
	p, folders := r.described("libvipl1", "libs", "x"), 0
	for _, format := range []string{"deb", "rpm"} {
		if err := (content{root: filepath.Join(r.build, format, "libvipl1")}).add(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range p.Contents {
		if f.Destination == "/usr/share/doc/libvipl1/" {
			folders++
		}
	}
	if folders != 1 {
		t.Errorf("the folder is listed %d times", folders)
	}
	got := string(r.changes("trapeze", "# Changelog\n\n## Unreleased\n\nWords.\n\n### NICs\n\n- One\n  goes on.\n- Two.\n\n## 0.0.1\n\n- Old.\n"))
	want := "trapeze (0.1.0) unstable; urgency=medium\n\n  * One\n    goes on.\n  * Two.\n\n -- " + maintainer + "  Thu, 01 Jan 1970 00:00:00 +0000\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCDI: the library of those who run containers takes the file, and puts the sockets of the
// service into a container.
func TestCDI(t *testing.T) {
	spec, err := cdi.ReadSpec("files/cdi.json", 0)
	if err != nil {
		t.Fatal(err)
	}
	var container specs.Spec
	for _, name := range []string{"emulated0", "emulated1"} {
		device := spec.GetDevice(name)
		if device == nil {
			t.Fatalf("no device %s", name)
		}
		if err := device.ApplyEdits(&container); err != nil {
			t.Fatal(err)
		}
	}
	var mounted []string
	for _, m := range container.Mounts {
		mounted = append(mounted, m.Source)
		if !strings.HasPrefix(m.Destination, "/run/trapeze/") || !slices.Contains(m.Options, "bind") {
			t.Errorf("mount %+v", m)
		}
	}
	slices.Sort(mounted)
	unit, err := os.ReadFile("../../kmod-notes/examples/trapeze-emulate.socket")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []string
	for _, m := range regexp.MustCompile(`(?m)^ListenStream=(.*)$`).FindAllStringSubmatch(string(unit), -1) {
		sockets = append(sockets, m[1])
	}
	if len(sockets) != 2 || !slices.Equal(mounted, sockets) {
		t.Errorf("the file mounts %v, and the service has %v", mounted, sockets)
	}
	text, err := os.ReadFile("files/cdi.json")
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), `"hostPath"`, `"path"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := cdi.ReadSpec(broken, 0); err == nil {
		t.Error("the library takes a file without a hostPath: this test proves nothing")
	}
}
