// Package leaktest looks in tests for what they leave behind: goroutines, file descriptors
// and mappings of files in memory.
package leaktest

import (
	"bytes"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if goroutines are left after them. TestMain
// calls it. NICs of the tests have no telemetry socket, which programs of others could find and
// ask meanwhile.
func Main(m *testing.M) {
	os.Setenv("TRAPEZE_TELEMETRY", "off")
	// The runtime's poller opens descriptors of its own at first use, which Check must not
	// take for a leak.
	// If there is no pipe, the tests will tell.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	goleak.VerifyTestMain(m)
}

// timeout limits Check's wait for what a goroutine closes last.
const timeout = 10 * time.Second

// clean has the descriptors and mappings with which the last test that was checked began and ended.
var clean struct{ files, mappings int }

// Check fails the test if it ends with other descriptors, or other mappings that Mappings
// counts, than it has now. It comes first in a test, which does not run in parallel to
// others.
func Check(t testing.TB) {
	t.Helper()
	files, mappings := settled(t)
	t.Cleanup(func() {
		for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
			f, m := Files(t), Mappings(t)
			switch {
			case f == files && m == mappings:
				clean.files, clean.mappings = f, m
				return
			case f < files || m < mappings || time.Now().After(end):
				t.Errorf("%d open files and %d mappings, %d and %d before", f, m, files, mappings)
				return
			}
		}
	})
}

// settled counts descriptors and mappings once what the test before has closed in the background
// is gone: when they are those of before that test, or the same for some time.
func settled(t testing.TB) (files, mappings int) {
	const same = 20 * time.Millisecond
	files, mappings = Files(t), Mappings(t)
	for end := time.Now().Add(timeout); (files != clean.files || mappings != clean.mappings) && time.Now().Before(end); {
		time.Sleep(same)
		f, m := Files(t), Mappings(t)
		if f == files && m == mappings {
			break
		}
		files, mappings = f, m
	}
	return files, mappings
}

// Files counts the descriptors of this process.
func Files(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Mappings counts this process's mappings of files in memory, and of sockets.
func Mappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, what := range []string{"/memfd:", "/dev/shm/", "socket:["} {
		n += bytes.Count(b, []byte(what))
	}
	return n
}
