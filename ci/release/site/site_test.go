package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRepository makes the site of this repository: run fails if a link of it leads nowhere.
func TestRepository(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := run("../../..", out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"index.html", "docs/guide.html", "descriptors/SPEC.html", "search.js"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := run("../../..", out); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a folder that is there: %v", err)
	}
}

func TestSite(t *testing.T) {
	page := func(text string) fstest.MapFS {
		return fstest.MapFS{
			"README.md":      {Data: []byte(text)},
			"docs/README.md": {Data: []byte("# Documents\n\n[home](../README.md#one--two)\n")},
			"via/nic.go":     {Data: []byte("package via // <b>\n")},
			"docs/a.svg":     {Data: []byte("<svg/>")},
			"x.bin":          {Data: []byte{0xff, 0xfe}},
		}
	}
	const heading = "# One & two\n\n"
	for _, tt := range []struct{ name, text, file, has, fails string }{
		{name: "heading", text: heading, file: "README.html", has: `<h1 id="one--two">`},
		{name: "document", text: heading + "[d](docs/README.md#documents)", file: "README.html", has: `href="docs/README.html#documents"`},
		{name: "source", text: heading + "[d](via/nic.go)", file: "via/nic.go.html", has: "package via // &lt;b&gt;"},
		{name: "folder", text: heading + "[d](via)", file: "via/folder.html", has: "<li>nic.go</li>"},
		{name: "picture", text: heading + "![d](docs/a.svg)", file: "docs/a.svg", has: "<svg/>"},
		{name: "table", text: heading + "| a |\n|---|\n| b |\n", file: "README.html", has: "<td>b</td>"},
		{name: "search", text: heading + "needle", file: "search.js", has: `{"url":"README.html#one--two",`},
		{name: "another host", text: heading + "[d](https://example.org/x)", file: "README.html", has: `href="https://example.org/x"`},
		{name: "HTML in a document", text: heading + "<script>alert(1)</script>", file: "README.html", has: "<!-- raw HTML omitted -->"},
		{name: "dead link", text: heading + "[d](gone.md)", fails: "leads nowhere"},
		{name: "dead place", text: heading + "[d](docs/README.md#gone)", fails: "no such place"},
		{name: "dead place here", text: heading + "[d](#gone)", fails: "no such place"},
		{name: "out of the repository", text: heading + "[d](../../etc/passwd)", fails: "leads nowhere"},
		{name: "neither text nor picture", text: heading + "[d](x.bin)", fails: "neither text nor a picture"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &site{sources: page(tt.text), files: map[string][]byte{}}
			err := s.make()
			if err == nil {
				err = s.check()
			}
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Fatalf("error %v, want %q", err, tt.fails)
			}
			if tt.fails == "" && !strings.Contains(string(s.files[tt.file]), tt.has) {
				t.Errorf("%s lacks %q: %s", tt.file, tt.has, s.files[tt.file])
			}
		})
	}
}
