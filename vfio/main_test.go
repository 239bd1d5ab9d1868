package vfio_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// dmaMappings counts the mappings of DMA memory in this process.
func dmaMappings(t *testing.T) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	return bytes.Count(b, []byte("/memfd:trapeze-dma"))
}

// checkLeaks fails the test if it ends with other descriptors or mappings than
// it began with. Tests that use it do not run in parallel.
func checkLeaks(t *testing.T) {
	t.Helper()
	files, mappings := leaktest.Files(t), dmaMappings(t)
	t.Cleanup(func() {
		should.Be(t, leaktest.Files(t), files, "open files")
		should.Be(t, dmaMappings(t), mappings, "mappings of DMA memory")
	})
}
