// Package seed keeps the corpora of fuzz targets in step with what the tests of their
// packages make: a seed that was written once says nothing any more after the format
// has changed. Only tests import it.
package seed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// Update is the environment variable that, set to 1, has Check write the seeds.
const Update = "TRAPEZE_UPDATE_SEEDS"

// Check compares testdata/fuzz/TARGET/NAME with the encoding of the arguments of the
// fuzz target, and fails the test if they differ. Arguments are bool, byte or []byte.
func Check(t testing.TB, target, name string, arguments ...any) {
	t.Helper()
	want := encode(t, arguments)
	file := filepath.Join("testdata", "fuzz", target, name)
	if os.Getenv(Update) == "1" {
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.OK(t, os.WriteFile(file, want, 0o644))
	}
	switch got, err := os.ReadFile(file); {
	case err != nil:
		t.Errorf("%v (%s=1 writes it)", err, Update)
	case !bytes.Equal(got, want):
		t.Errorf("%s is not what the test makes (%s=1 writes it)", file, Update)
	}
}

// encode encodes arguments as go test does (internal/fuzz of the Go tree, "go test fuzz
// v1").
func encode(t testing.TB, arguments []any) []byte {
	t.Helper()
	b := []byte("go test fuzz v1\n")
	for _, a := range arguments {
		switch a := a.(type) {
		case bool:
			b = fmt.Appendf(b, "bool(%v)\n", a)
		case byte:
			b = fmt.Appendf(b, "byte(%q)\n", a)
		case []byte:
			b = fmt.Appendf(b, "[]byte(%q)\n", a)
		default:
			t.Fatalf("an argument of type %T", a)
		}
	}
	return b
}
