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
	"channel": 1000, "ci": 7640, "conform": 7800, "descriptors": 3450, "driver": 10900, "emulator": 4150,
	"engine": 10560, "ethernet": 15200, "examples": 1700, "firmware-loader": 10630, "internal": 6330,
	"lab": 19980, "metrics": 100, "netmem": 10213, "pipeline": 1710, "ring": 2000, "tools": 22040, "vfio": 12700,
	"via": 5060, "vipl": 1950, "wire": 12305,
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
