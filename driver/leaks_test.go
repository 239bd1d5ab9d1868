package driver_test

import (
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// checkLeaks fails the test if files or goroutines are left at its end, after
// what is cleaned up later than this call.
func checkLeaks(t *testing.T) {
	t.Helper()
	// Have the runtime open what it keeps open: its poller.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if after := openFiles(t); after != before {
			t.Errorf("%d files are open, %d before the test", after, before)
		}
		goleak.VerifyNone(t, ignore)
	})
}

// openFiles counts the process's file descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	f, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(f)
}
