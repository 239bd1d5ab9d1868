// Package leaktest looks in tests for what they leave behind: goroutines, file descriptors
// and mappings of files in memory.
package leaktest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if goroutines are left after them. TestMain
// calls it. NICs of the tests have no telemetry socket, which programs of others could find and
// ask meanwhile.
func Main(m *testing.M) {
	os.Setenv("TRAPEZE_TELEMETRY", "off")
	// The runtime's poller opens descriptors of its own at first use, which Check must not
	// take for a leak.
	r, w, _ := os.Pipe() // if there is none, the tests will tell
	r.Close()
	w.Close()
	goleak.VerifyTestMain(&tests{m})
}

// tests are those of a package. What those leave open that called Parallel is looked for at the end.
type tests struct{ *testing.M }

func (m *tests) Run() int {
	_ = flag.Set("test.parallel", "16") // they wait more than they work
	before := openFiles()
	code := m.M.Run()
	for end := time.Now().Add(timeout); code == 0 && anyParallel.Load() && openFiles() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			fmt.Printf("%d open files, %d before all tests\n", openFiles(), before)
			return 1
		}
	}
	return code
}

var (
	parallel    sync.Map // names of the tests that called Parallel
	anyParallel atomic.Bool
)

// Parallel is t.Parallel for a test, not a part of one, that waits more than it works. Check does nothing in it.
func Parallel(t *testing.T) {
	t.Helper()
	parallel.Store(t.Name(), true)
	anyParallel.Store(true)
	t.Parallel()
}

// IsParallel reports whether t, or the test that it is a part of, called Parallel.
func IsParallel(t testing.TB) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	_, ok := parallel.Load(name)
	return ok
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// timeout limits Check's wait for what a goroutine closes last.
const timeout = 10 * time.Second

// Check fails the test if it ends with other descriptors, or other mappings that Mappings
// counts, than it has now. It comes first in a test, or behind Parallel.
func Check(t testing.TB) {
	t.Helper()
	if IsParallel(t) {
		return
	}
	files, mappings := settled(t)
	t.Cleanup(func() {
		for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
			f, m := Files(t), Mappings(t)
			switch {
			case f == files && m == mappings:
				return
			case f < files || m < mappings || time.Now().After(end):
				t.Errorf("%d open files and %d mappings, %d and %d before", f, m, files, mappings)
				return
			}
		}
	})
}

// settled counts descriptors and mappings once what the test before has closed in the background
// is gone: when they are the same for some time.
func settled(t testing.TB) (files, mappings int) {
	const same = 20 * time.Millisecond
	files, mappings = Files(t), Mappings(t)
	for end := time.Now().Add(timeout); time.Now().Before(end); {
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
	return len(must.Get(os.ReadDir("/proc/self/fd"))(t))
}

// Mappings counts this process's mappings of files in memory, and of sockets.
func Mappings(t testing.TB) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	n := 0
	for _, what := range []string{"/memfd:", "/dev/shm/", "socket:["} {
		n += bytes.Count(b, []byte(what))
	}
	return n
}
