package vfio_test

import (
	"bytes"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/vfio"
)

func TestMain(m *testing.M) {
	// The runtime's poller opens descriptors of its own at first use, which
	// checkLeaks must not take for a leak.
	e, err := vfio.NewEventfd()
	if err != nil {
		panic(err)
	}
	if err := e.Close(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// dmaMappings counts the mappings of DMA memory in this process.
func dmaMappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("/memfd:trapeze-dma"))
}

// checkLeaks fails the test if it ends with other descriptors or mappings than
// it began with. Tests that use it do not run in parallel.
func checkLeaks(t *testing.T) {
	t.Helper()
	files, mappings := openFiles(t), dmaMappings(t)
	t.Cleanup(func() {
		if n := openFiles(t); n != files {
			t.Errorf("%d open files, %d before", n, files)
		}
		if n := dmaMappings(t); n != mappings {
			t.Errorf("%d mappings of DMA memory, %d before", n, mappings)
		}
	})
}
