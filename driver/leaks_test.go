package driver_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
)

// checkLeaks fails the test if files or goroutines are left at its end, after
// what is cleaned up later than this call.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := leaktest.Files(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if after := leaktest.Files(t); after != before {
			t.Errorf("%d files are open, %d before the test", after, before)
		}
		goleak.VerifyNone(t, ignore)
	})
}
