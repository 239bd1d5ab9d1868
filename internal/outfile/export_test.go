package outfile

import (
	"io/fs"
	"os"
	"testing"
)

// WithoutNameless makes every file system one that has no files without a name,
// until the test ends.
func WithoutNameless(t *testing.T) {
	was := nameless
	nameless = func(string, fs.FileMode) *os.File { return nil }
	t.Cleanup(func() { nameless = was })
}
