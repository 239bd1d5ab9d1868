package memif_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/testpmd"
)

// timeout ends tests that do not end by themselves.
const timeout = testpmd.Timeout

// required is set where these tests are to run.
const required = "TRAPEZE_MEMIF_INTEROP"

// needsTestpmd skips a test unless it was asked for, and fails it if something is missing.
func needsTestpmd(t *testing.T) {
	t.Helper()
	testpmd.Needs(t, required, "ci/memif/run", "memif", "pcap")
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "memif"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// abstractName makes an abstract name of a path of socketPath.
func abstractName(path string) string { return "@" + filepath.Base(filepath.Dir(path)) }
