package docs

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// metaphors are words that this project once used where VIA, PCI and TCP have others:
// idle, wake, do not answer, end, dropped, copy.
var metaphors = regexp.MustCompile(`(?i)\b(doz(e[drs]?|ing)|stir(s|red|ring)?|hang(s|ing)?|silen(t|tly|ce[ds]?)|bur(y|ies|ied)|` +
	`epitaphs?|graves?|heed(s|ed|ing)?|pour(s|ed|ing)?|litter(s|ed|ing)?)\b`)

// checkWords lists metaphors in documents and in the comments of Go files.
func checkWords(root fs.FS) (problems []string, err error) {
	err = eachFile(root, func(p, ext, text string) {
		switch ext {
		case ".md":
			text = withoutCode(text)
		case ".go":
			text = comments([]byte(text))
		default:
			return
		}
		for _, word := range metaphors.FindAllString(text, -1) {
			problems = append(problems, fmt.Sprintf("%s: %q: VIA, PCI or TCP has a word for that", p, word))
		}
	})
	return problems, err
}

// comments returns the comments of a Go file without their slashes, and without code in them. A zero byte stands between
// two that are not on lines that follow each other.
func comments(source []byte) string {
	var all strings.Builder
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	s.Init(file, source, nil, scanner.ScanComments)
	last := 0
	for {
		pos, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return all.String()
		case token.COMMENT:
			if strings.HasPrefix(text, "//\t") || strings.HasPrefix(text, "//    ") {
				continue // code, or a table
			}
			line := file.Line(pos)
			if line != last+1 {
				all.WriteByte(0)
			}
			last = line + strings.Count(text, "\n")
			all.WriteString(strings.TrimSpace(strings.TrimPrefix(text, "//")) + "\n")
		}
	}
}

func TestWordsOfRepository(t *testing.T) {
	problems := must.Get(checkWords(os.DirFS("../..")))(t)
	for _, p := range problems {
		t.Error(p)
	}
}

// TestWords checks the rule itself.
func TestWords(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		found            int
	}{
		{"document", "docs/x.md", "The NIC dozes until somebody stirs it.", 2},
		{"plain document", "docs/x.md", "The NIC is idle until a post wakes it. It is a change.", 0},
		{"code in a document", "x.md", "```\nstir\n```\n", 0},
		{"comment", "via/x.go", "package via // Silence is long\n", 1},
		{"comment of a package inside", "internal/via/x/x.go", "/* buried */ package x\n", 1},
		{"code", "via/x.go", "package via\n\nconst grave = \"pour\"\n", 0},
		{"comment of another room", "vfio/x.go", "package vfio // hangs\n", 1},
	} {
		problems, err := checkWords(fstest.MapFS{tt.file: {Data: []byte(tt.text)}})
		should.Hold(t, err == nil && len(problems) == tt.found, "%s: %q, %v", tt.name, problems, err)
	}
}
