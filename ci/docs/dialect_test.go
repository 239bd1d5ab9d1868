package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// forms are those that plain English has a subject for: "the caller" for "whoever calls", "the
// peer" for "somebody else", and a verb for "is what".
var forms = regexp.MustCompile(`(?i)\b(who(m|se)?ever|somebody|nobody|anybody|everybody|(is|are) (what|how))\b`)

// maxWords is how many words a sentence has at most.
const maxWords = 25

// Ceilings of this repository. Lower them when there are fewer.
const (
	maxForms   = 0
	maxLong    = 540
	maxLongest = 70
)

var (
	// spans are parts of a document that are no prose.
	spans = regexp.MustCompile("(?m)^\\|.*\\|$|^    .*$|^#.*$|`[^`]*`|\\]\\([^)]*\\)")
	// ends are the ends of sentences and of paragraphs.
	ends = regexp.MustCompile(`[.:;!?](\s|$)|\n\s*(\n|[-*]|\d+\.)`)
)

// dialect is what is counted in documents and comments.
type dialect struct{ forms, long, longest, sentences, words int }

func (d *dialect) add(text string) {
	d.forms += len(forms.FindAllString(text, -1))
	for _, s := range ends.Split(text, -1) {
		n := len(strings.Fields(s))
		if n == 0 {
			continue
		}
		d.sentences++
		d.words += n
		d.longest = max(d.longest, n)
		if n > maxWords {
			d.long++
		}
	}
}

// addTexts counts the forms in a Go file's strings of more than one word: errors, hints and help.
func (d *dialect) addTexts(source []byte) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(source)), source, nil, 0)
	for {
		switch _, tok, text := s.Scan(); {
		case tok == token.EOF:
			return
		case tok == token.STRING && strings.ContainsAny(text, " \n"):
			d.forms += len(forms.FindAllString(text, -1))
		}
	}
}

// countDialect counts in the documents, in the help, and in the comments and strings of Go
// files, tests aside.
func countDialect(root fs.FS) (d dialect, err error) {
	err = fs.WalkDir(root, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if p != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(p); ext != ".md" && ext != ".go" && e.Name() != "help.txt" || strings.HasSuffix(p, "_test.go") || p == "CHANGELOG.md" {
			return nil
		}
		b, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		switch path.Ext(p) {
		case ".md":
			d.add(spans.ReplaceAllString(withoutCode(string(b)), " "))
		case ".txt":
			d.forms += len(forms.FindAll(b, -1))
		default:
			d.addTexts(b)
			for _, block := range strings.Split(comments(b), "\x00") {
				d.add(block)
			}
		}
		return nil
	})
	return d, err
}

// TestDialect holds the ceilings of this repository.
func TestDialect(t *testing.T) {
	d, err := countDialect(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d forms; %d sentences of %.1f words; %d of more than %d, the longest of %d",
		d.forms, d.sentences, float64(d.words)/float64(d.sentences), d.long, maxWords, d.longest)
	if d.forms > maxForms {
		t.Errorf("%d forms such as whoever, somebody and is what, more than %d: give the sentence a subject and a verb", d.forms, maxForms)
	}
	if d.long > maxLong {
		t.Errorf("%d sentences of more than %d words, more than %d", d.long, maxWords, maxLong)
	}
	if d.longest > maxLongest {
		t.Errorf("a sentence has %d words, more than %d", d.longest, maxLongest)
	}
}

// TestDialectCounts checks the counting itself.
func TestDialectCounts(t *testing.T) {
	long := strings.Repeat("word ", maxWords+1)
	for _, tt := range []struct {
		name, file, text  string
		forms, long, most int
	}{
		{"plain", "docs/x.md", "The caller waits. The peer answers.", 0, 0, 3},
		{"forms", "docs/x.md", "Whoever waits is what somebody needs.", 3, 0, 6},
		{"long", "docs/x.md", long + ".", 0, 1, maxWords + 1},
		{"a list", "docs/x.md", "one two\n- three\n- four five six\n", 0, 0, 3},
		{"a table", "docs/x.md", "| " + long + " |\n", 0, 0, 0},
		{"code", "docs/x.md", "```\n" + long + "\n```\n", 0, 0, 0},
		{"a comment of two lines", "via/x.go", "package via\n\n// The caller\n// waits.\nvar x int\n", 0, 0, 3},
		{"two comments", "via/x.go", "package via\n\n// The caller\nvar x int\n\n// waits\nvar y int\n", 0, 0, 2},
		{"a string", "via/x.go", "package via\nvar x = \"nobody waits\"\n", 1, 0, 0},
		{"a name", "via/x.go", "package via\nvar x = \"nobody\"\n", 0, 0, 0},
		{"help", "tools/help.txt", "Answers go to whoever asked.", 1, 0, 0},
		{"a test", "via/x_test.go", "package via // whoever\n", 0, 0, 0},
	} {
		d, err := countDialect(fstest.MapFS{tt.file: {Data: []byte(tt.text)}})
		if err != nil || d.forms != tt.forms || d.long != tt.long || d.longest != tt.most {
			t.Errorf("%s: %+v, %v", tt.name, d, err)
		}
	}
}
