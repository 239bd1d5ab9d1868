// Package docs checks that what the documents and comments of this repository
// point to is there, and that the Go code they show is code that is compiled.
package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// specFile is the data sheet, whose sections comments refer to as
// "SPEC.md 8.4".
const specFile = "descriptors/SPEC.md"

var (
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	numbered  = regexp.MustCompile(`^(\d+(?:\.\d+)*)\.? `)
	reference = regexp.MustCompile(`SPEC\.md,? (?:sections? )?(\d+(?:\.\d+)*)`)
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence     = regexp.MustCompile("(?ms)^```.*?^```$")
	lostRow   = regexp.MustCompile(`(?m)(?:\A|^\n)(\|.*)\n(?:[^|]|\|[^-: ]|\| *[^-: |])`)
	goCode    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
)

// shownBelow is where the code stands that documents show.
const shownBelow = "examples"

// Check looks at every Markdown and Go file of the module in root and lists
// references that lead nowhere and Go code that is in no example.
func Check(root fs.FS) ([]string, error) {
	spec, err := fs.ReadFile(root, specFile)
	if err != nil {
		return nil, err
	}
	sections := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(withoutCode(string(spec)), -1) {
		if m := numbered.FindStringSubmatch(h[1]); m != nil {
			sections[m[1]] = true
		}
	}

	shown, err := readExamples(root)
	if err != nil {
		return nil, err
	}

	var problems []string
	err = eachFile(root, func(p, ext, text string) {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if !sections[m[1]] {
				problems = append(problems, fmt.Sprintf("%s: %s has no section %s", p, specFile, m[1]))
			}
		}
		if ext == ".md" {
			problems = append(problems, checkLinks(root, p, withoutCode(text))...)
			for _, m := range lostRow.FindAllStringSubmatch(withoutCode(text), -1) {
				problems = append(problems, fmt.Sprintf("%s: a row of no table, as a blank line is before it: %s", p, m[1]))
			}
			for _, m := range goCode.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(shown, m[1]) {
					first, _, _ := strings.Cut(m[1], "\n")
					problems = append(problems, fmt.Sprintf("%s: the code from %q on is in no file below %s", p, first, shownBelow))
				}
			}
		}
	})
	return problems, err
}

// eachFile calls visit with the documents and the source of a repository, and with the ends of their names.
func eachFile(root fs.FS, visit func(p, ext, text string)) error {
	return fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch ext := path.Ext(p); {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && (ext == ".md" || ext == ".go" || ext == ".s"):
			b, err := fs.ReadFile(root, p)
			visit(p, ext, string(b))
			return err
		}
		return nil
	})
}

// readExamples returns the source of all examples.
func readExamples(root fs.FS) (string, error) {
	var all strings.Builder
	if _, err := fs.Stat(root, shownBelow); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	err := fs.WalkDir(root, shownBelow, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(p) != ".go" {
			return err
		}
		b, err := fs.ReadFile(root, p)
		all.Write(b)
		return err
	})
	return all.String(), err
}

func withoutCode(markdown string) string { return fence.ReplaceAllString(markdown, "") }

// checkLinks looks up the links of a document that stay inside the repository.
func checkLinks(root fs.FS, p, text string) []string {
	var problems []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		u, err := url.Parse(m[1])
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: link %s: %v", p, m[1], err))
			continue
		}
		if u.Scheme != "" {
			continue
		}
		target, body := p, text
		if u.Path != "" {
			target = path.Join(path.Dir(p), u.Path)
			if _, err := fs.Stat(root, target); err != nil {
				problems = append(problems, fmt.Sprintf("%s: link %s leads nowhere", p, m[1]))
				continue
			}
		}
		if u.Fragment == "" {
			continue
		}
		if target != p {
			b, err := fs.ReadFile(root, target)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: link %s: %v", p, m[1], err))
				continue
			}
			body = withoutCode(string(b))
		}
		if !hasAnchor(body, u.Fragment) {
			problems = append(problems, fmt.Sprintf("%s: link %s: no such heading", p, m[1]))
		}
	}
	return problems
}

// hasAnchor says whether a document has a heading that its viewers know by
// anchor: lower case, blanks as hyphens, punctuation left out.
func hasAnchor(markdown, anchor string) bool {
	for _, h := range heading.FindAllStringSubmatch(markdown, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			}
			return -1
		}, strings.ToLower(h[1]))
		if name == anchor {
			return true
		}
	}
	return false
}
