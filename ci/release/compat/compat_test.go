package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a module in Git, whose commits a test makes.
type repository struct {
	t   *testing.T
	dir string
}

func (r repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) git(args ...string) {
	r.t.Helper()
	if _, err := git(r.t.Context(), r.dir, args...); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-q", "--allow-empty", "-m", "x")
}

const (
	sheet = "package datasheet\n\nconst (\n\tWireVersion = 1\n\tRegSize = 4\n)\n"
	api   = "package via\n\n// Open opens.\nfunc Open(name string) error { return nil }\n"
)

func TestCompat(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		changelog        string
		untagged         bool
		prints, fails    string
	}{
		{name: "nothing changed", file: "x.txt", changelog: "0.1.1", prints: "0 incompatible changes since v0.1.0"},
		{name: "no tag", file: "x.txt", changelog: "0.1.0", untagged: true, prints: "no earlier tag"},
		{name: "a function more", file: "via/more.go", text: "package via\n\nfunc More() {}\n", changelog: "0.1.1", prints: "0 incompatible"},
		{name: "another signature", file: "via/via.go", text: "package via\n\nfunc Open() error { return nil }\n", changelog: "0.1.1",
			prints: "via: Open: changed from func(string) error to func() error", fails: "patch version"},
		{name: "another signature, minor version", file: "via/via.go", text: "package via\n\nfunc Open() error { return nil }\n", changelog: "0.2.0",
			prints: "via: Open: changed"},
		{name: "another signature, not released yet", file: "via/via.go", text: "package via\n", changelog: "Unreleased", prints: "via: Open: removed"},
		{name: "a register moved", file: "internal/datasheet/d.go", text: strings.Replace(sheet, "RegSize = 4", "RegSize = 8", 1), changelog: "0.2.0",
			prints: "constant RegSize is 8, and was 4", fails: "the data sheet changed, and its version did not"},
		{name: "a register is gone", file: "internal/datasheet/d.go", text: "package datasheet\n\nconst WireVersion = 1\n", changelog: "0.2.0",
			prints: "constant RegSize is gone", fails: "its version did not"},
		{name: "a register moved, with the version", file: "internal/datasheet/d.go", text: "package datasheet\n\nconst (\n\tWireVersion = 2\n\tRegSize = 8\n)\n",
			changelog: "0.2.0", prints: "constant RegSize is 8, and was 4"},
		{name: "what is internal", file: "via/internal/x/x.go", text: "package x\n", changelog: "0.1.1", prints: "0 incompatible"},
		{name: "it does not compile", file: "via/via.go", text: "package via\n\nfunc Open() error { return missing }\n", changelog: "0.2.0", fails: "missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := repository{t, t.TempDir()}
			r.git("init", "-q")
			r.write("go.mod", "module example.org/m\n\ngo 1.26.0\n")
			r.write("internal/datasheet/d.go", sheet)
			r.write("via/via.go", api)
			r.write("via/internal/x/x.go", "package x\n\nfunc F() {}\n")
			r.commit()
			if !tt.untagged {
				r.git("tag", "v0.1.0")
			}
			r.write(tt.file, tt.text)
			r.write("CHANGELOG.md", "# Changelog\n\n## "+tt.changelog+"\n\ntext\n")
			r.commit()
			var out strings.Builder
			err := run(t.Context(), r.dir, &out)
			if !strings.Contains(out.String(), tt.prints) {
				t.Errorf("it prints %q, want %q", out.String(), tt.prints)
			}
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
		})
	}
}
