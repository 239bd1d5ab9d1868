package docs

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

var (
	inline     = regexp.MustCompile("`([^`]+)`")
	named      = regexp.MustCompile(`^[A-Za-z0-9_.*-]+(/[A-Za-z0-9_.*-]+)*$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*(\.[A-Za-z]\w*)*$`)
	goWord     = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// TestNamed: the files, folders and Go names that the pages about the code name are there. A path may
// begin at any folder, as it does beside another one.
func TestNamed(t *testing.T) {
	paths, words := map[string]bool{}, map[string]bool{}
	must.OK(t, fs.WalkDir(os.DirFS("../.."), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		for rest, ok := p, true; ok; _, rest, ok = strings.Cut(rest, "/") {
			paths[rest] = true
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path.Join("../..", p))
		for _, w := range goWord.FindAllString(string(text), -1) {
			words[w] = true
		}
		return err
	}))
	for _, page := range []string{"ARCHITECTURE.md", "docs/walks.md"} {
		text := must.Get(os.ReadFile(path.Join("../..", page)))(t)
		for _, m := range inline.FindAllStringSubmatch(withoutCode(string(text)), -1) {
			name := m[1]
			switch {
			case strings.HasPrefix(name, "ROOM/") || !named.MatchString(name):
			case paths[name] || strings.Contains(name, "*") && matches(paths, name):
			case strings.Contains(name, "/") || strings.Contains(name, "*") || path.Ext(name) == ".go":
				t.Errorf("%s names %s, which is not there", page, name)
			case identifier.MatchString(name):
				for _, w := range strings.Split(name, ".") {
					should.Hold(t, words[w], "%s names %s, and no Go file has %s", page, name, w)
				}
			}
		}
	}
}

func matches(paths map[string]bool, pattern string) bool {
	for p := range paths {
		if ok, _ := path.Match(pattern, p); ok {
			return true
		}
	}
	return false
}
