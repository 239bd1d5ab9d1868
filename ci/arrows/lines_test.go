package arrows

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostLines are ceilings of lines of Go that are no tests, for each room. They fall when code
// goes; what makes a room larger takes the lines from another one.
var mostLines = map[string]int{
	"channel": 990, "ci": 11160, "conform": 7930, "descriptors": 400, "driver": 10497, "emulator": 4414,
	"engine": 11487, "ethernet": 13061, "examples": 1690, "firmware-loader": 10290, "internal": 13392,
	"kubernetes": 2120, "lab": 19386, "metrics": 100, "netmem": 11200, "pipeline": 1710, "ring": 1910,
	"tools": 25409, "vfio": 10146, "via": 5666, "vipl": 2010, "wire": 14306,
}

// TestLines counts the lines of each room, all modules together.
func TestLines(t *testing.T) {
	lines, all := map[string]int{}, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d lines: %v", all, lines)
	for room, n := range lines {
		if most, known := mostLines[room]; n > most || !known {
			t.Errorf("%s has %d lines, at most %d", room, n, most)
		}
	}
}
