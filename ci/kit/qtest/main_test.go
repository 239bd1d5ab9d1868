package qtest_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/vfio"
)

// timeout bounds waits that ought to be short.
const timeout = 10 * time.Second

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
	d, err := m.Open(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// memory maps zeroed memory for d until the test ends.
func memory(t testing.TB, d vfio.Device, size, iova uint64) []byte {
	t.Helper()
	mem, err := vfio.AllocMemory(size, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.MapDMA(mem, iova, vfio.DMARead|vfio.DMAWrite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.UnmapDMA(iova, mem.Size()); err != nil {
			t.Error(err)
		}
	})
	return mem.Bytes()
}

func read32(t testing.TB, d vfio.Device, region int, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	if err := d.ReadRegion(region, offset, b[:]); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b[:])
}

func write32(t testing.TB, d vfio.Device, region int, offset uint64, v uint32) {
	t.Helper()
	if err := d.WriteRegion(region, offset, binary.LittleEndian.AppendUint32(nil, v)); err != nil {
		t.Fatal(err)
	}
}
