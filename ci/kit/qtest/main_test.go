package qtest_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeVariable); how != "" {
		fake(how)
		os.Exit(0)
	}
	leaktest.Main(m)
}

// open takes device n of a machine for the test.
func open(t testing.TB, m *qtest.Machine, n int) *qtest.Device {
	t.Helper()
	d := must.Get(m.Open(n))(t)
	t.Cleanup(func() { should.OK(t, d.Close()) })
	return d
}

// memory maps zeroed memory for d until the test ends.
func memory(t testing.TB, d vfio.Device, size, iova uint64) []byte {
	t.Helper()
	mem := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{}))(t)
	t.Cleanup(func() { should.OK(t, mem.Close()) })
	must.OK(t, d.MapDMA(mem, iova, vfio.DMARead|vfio.DMAWrite))
	t.Cleanup(func() { should.OK(t, d.UnmapDMA(iova, mem.Size())) })
	return mem.Bytes()
}

func read32(t testing.TB, d vfio.Device, region int, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	must.OK(t, d.ReadRegion(region, offset, b[:]))
	return binary.LittleEndian.Uint32(b[:])
}

func write32(t testing.TB, d vfio.Device, region int, offset uint64, v uint32) {
	t.Helper()
	must.OK(t, d.WriteRegion(region, offset, binary.LittleEndian.AppendUint32(nil, v)))
}
