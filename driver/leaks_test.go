package driver_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// checkLeaks fails the test if files or goroutines are left at its end, after
// what is cleaned up later than this call.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := leaktest.Files(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		should.Be(t, leaktest.Files(t), before, "files are open, before the test")
		goleak.VerifyNone(t, ignore)
	})
}
