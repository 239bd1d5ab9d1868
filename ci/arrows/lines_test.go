package arrows

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// mostLines is the ceiling of all lines of Go that are no tests, all modules together. It only
// falls: a feature takes its lines from somewhere else.
const mostLines = 155091

// TestLines counts the lines of all modules, and logs those of each room.
func TestLines(t *testing.T) {
	lines, all := map[string]int{}, 0
	must.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, path)
		room, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
		n := bytes.Count(text, []byte("\n"))
		lines[room], all = lines[room]+n, all+n
		return err
	}))
	t.Logf("%d lines: %v", all, lines)
	should.Hold(t, all <= mostLines, "the project has %d lines of Go that are no tests, at most %d", all, mostLines)
}
