package docs

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestRepository checks this repository.
func TestRepository(t *testing.T) {
	problems := must.Get(Check(os.DirFS("../..")))(t)
	for _, p := range problems {
		t.Error(p)
	}
}

// TestRules checks the rules themselves on one file at a time.
func TestRules(t *testing.T) {
	const spec = "# Sheet\n## 8. Wire\n### 8.4 Acks & more\n```\n## 9. not a heading\n```\n"
	for _, tt := range []struct{ name, file, text, want string }{
		{"section", "via/vi.go", "// see SPEC.md 8.4\npackage via\n", ""},
		{"part", "via/vi.go", "// (SPEC.md 8).\npackage via\n", ""},
		{"no such section", "via/vi.go", "// see SPEC.md 8.5\npackage via\n", "no section 8.5"},
		{"heading inside a diagram", "via/vi.go", "// see SPEC.md 9\npackage via\n", "no section 9"},
		{"section in a document", "README.md", "SPEC.md, section 7.1", "no section 7.1"},
		{"link", "README.md", "[sheet](descriptors/SPEC.md)", ""},
		{"link from a folder", "descriptors/NOTES.md", "[sheet](SPEC.md#8-wire)", ""},
		{"anchor", "README.md", "[acks](descriptors/SPEC.md#84-acks--more)", ""},
		{"web", "README.md", "[web](https://example.org/x#y)", ""},
		{"dead link", "README.md", "[x](descriptors/GONE.md)", "leads nowhere"},
		{"dead anchor", "README.md", "[x](descriptors/SPEC.md#85-more)", "no such heading"},
		{"dead own anchor", "README.md", "# One\n[x](#two)", "no such heading"},
		{"own anchor", "README.md", "# One two\n[x](#one-two)", ""},
		{"in code", "README.md", "```\n[x](nowhere)\n```\n", ""},
		{"table", "README.md", "A table:\n\n| a | b |\n|---|:-:|\n| c | d |\n", ""},
		{"row behind a blank line", "README.md", "| a | b |\n|---|---|\n| c | d |\n\n| e | f |\n| g | h |\n", "| e | f |"},
		{"code of an example", "README.md", "```go\nfunc main() {\n}\n```\n", ""},
		{"code of none", "README.md", "```go\nfunc other() {\n}\n```\n", "func other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := must.Get(Check(fstest.MapFS{
				"descriptors/SPEC.md":    {Data: []byte(spec)},
				"examples/hello/main.go": {Data: []byte("package main\n\nfunc main() {\n}\n")},
				tt.file:                  {Data: []byte(tt.text)},
			}))(t)
			got := strings.Join(problems, "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	_, err := Check(fstest.MapFS{})
	should.Hold(t, err != nil, "a missing data sheet goes unnoticed")
}

// TestFrontPage: the README has 120 lines and 8 KiB at most, the first program in it is that
// of examples/hello, and that has 52 lines at most.

func TestFrontPage(t *testing.T) {
	hello := must.Get(os.ReadFile("../../examples/hello/main.go"))(t)
	if n := strings.Count(string(hello), "\n"); n > 52 {
		t.Errorf("examples/hello has %d lines", n)
	}
	readme := must.Get(os.ReadFile("../../README.md"))(t)
	if n := strings.Count(string(readme), "\n"); n > 120 || len(readme) > 8<<10 {
		t.Errorf("the README has %d lines and %d bytes", n, len(readme))
	}
	first := goCode.FindSubmatch(readme)
	should.Hold(t, first != nil && strings.Contains(string(hello), string(first[1])), "the first Go in the README is not that of examples/hello")
}
