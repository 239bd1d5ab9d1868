package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
