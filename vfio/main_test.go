package vfio_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
	files, mappings := leaktest.Files(t), dmaMappings(t)
	t.Cleanup(func() {
		if n := leaktest.Files(t); n != files {
			t.Errorf("%d open files, %d before", n, files)
		}
		if n := dmaMappings(t); n != mappings {
			t.Errorf("%d mappings of DMA memory, %d before", n, mappings)
		}
	})
}
