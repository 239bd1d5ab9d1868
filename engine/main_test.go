package engine_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected less often than usual: a test makes worlds of some megabytes, many hundreds one after the
// other, and little of it lives.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
