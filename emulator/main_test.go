package emulator_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// smallLimits make devices that are quick to create.
var smallLimits = engine.Limits{Endpoints: 16, CQs: 8, Regions: 64, Ptags: 8, QueueLog2: 8, CQLog2: 8,
	Segments: 252, Transfer: 1 << 20, Vectors: 16}

// checkFiles fails the test if it leaves file descriptors behind.
func checkFiles(t testing.TB) {
	t.Helper()
	if leaktest.IsParallel(t) {
		return
	}
	before := leaktest.Files(t)
	t.Cleanup(func() {
		should.Be(t, leaktest.Files(t), before, "file descriptors before the test, after it")
	})
}

// newDevice makes a device on a loopback wire. It is closed with the test.
func newDevice(t testing.TB, change func(o *emulator.Options)) *emulator.Device {
	t.Helper()
	w := must.Get(wire.NewLoopback(wire.MemoryOptions{}))(t)
	o := emulator.Options{Wire: w, MAC: datasheet.MAC{2, 0, 0, 0, 0, 1}, Limits: smallLimits}
	if change != nil {
		change(&o)
	}
	d := must.Get(emulator.New(o))(t)
	t.Cleanup(func() { closeDevice(t, d) })
	return d
}

func newPair(t testing.TB, o emulator.PairOptions) (a, b *emulator.Device) {
	t.Helper()
	if o.Limits == (engine.Limits{}) {
		o.Limits = smallLimits
	}
	a, b = must.Two(emulator.Pair(o))(t)
	t.Cleanup(func() {
		closeDevice(t, a)
		closeDevice(t, b)
	})
	return a, b
}

func closeDevice(t testing.TB, d vfio.Device) {
	t.Helper()
	should.OK(t, d.Close())
}

// Offsets in configuration space that tests write.
const (
	configCommand     = 0x04
	configPower       = 0x44
	configExpress     = 0x50
	configMSIX        = 0x90
	commandMemory     = 0x2
	commandBusMaster  = 0x4
	configDevControl  = configExpress + 0x08
	configMSIXControl = configMSIX + 0x02
)

// powerUp does what a driver does first.
func powerUp(t testing.TB, d vfio.Device) {
	t.Helper()
	writeConfig16(t, d, configCommand, commandMemory|commandBusMaster)
}

func writeConfig16(t testing.TB, d vfio.Device, offset uint64, v uint16) {
	t.Helper()
	write(t, d, vfio.RegionConfig, offset, binary.LittleEndian.AppendUint16(nil, v))
}

func readConfig16(t testing.TB, d vfio.Device, offset uint64) uint16 {
	t.Helper()
	return binary.LittleEndian.Uint16(read(t, d, vfio.RegionConfig, offset, 2))
}

func read(t testing.TB, d vfio.Device, region int, offset uint64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if err := d.ReadRegion(region, offset, p); err != nil {
		t.Fatalf("read region %d at %#x: %v", region, offset, err)
	}
	return p
}

func write(t testing.TB, d vfio.Device, region int, offset uint64, p []byte) {
	t.Helper()
	if err := d.WriteRegion(region, offset, p); err != nil {
		t.Fatalf("write region %d at %#x: %v", region, offset, err)
	}
}

func read32(t testing.TB, d vfio.Device, offset uint64) uint32 {
	t.Helper()
	return binary.LittleEndian.Uint32(read(t, d, vfio.RegionBAR0, offset, 4))
}

func write32(t testing.TB, d vfio.Device, offset uint64, v uint32) {
	t.Helper()
	write(t, d, vfio.RegionBAR0, offset, binary.LittleEndian.AppendUint32(nil, v))
}

func counter(t testing.TB, d vfio.Device, c datasheet.Counter) uint32 {
	t.Helper()
	return read32(t, d, datasheet.CounterOffset+datasheet.RegCounterBase+8*uint64(c))
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	var e *vfio.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Device == "" {
		t.Errorf("%s: error %v, want a vfio.Error of a device with %v", what, err, want)
	}
}

// newMemory allocates DMA memory, closed with the test.
func newMemory(t testing.TB, size uint64) *vfio.Memory {
	t.Helper()
	m := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	t.Cleanup(func() {
		should.OK(t, m.Close())
	})
	return m
}

func newEventfd(t testing.TB) *vfio.Eventfd {
	t.Helper()
	e := must.Get(vfio.NewEventfd())(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// signalled takes the eventfd's signal and reports whether there was one.
func signalled(e *vfio.Eventfd) bool {
	ctx, cancel := context.WithTimeout(context.Background(), brief)
	defer cancel()
	return e.Wait(ctx) == nil
}
