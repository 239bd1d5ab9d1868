package kernel

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	leaktest.Main(m)
}

// checkFiles fails the test if it ends with other open files than now. Tests
// that use it do not run in parallel.
func checkFiles(t *testing.T) {
	t.Helper()
	before := leaktest.Files(t)
	t.Cleanup(func() {
		should.Be(t, leaktest.Files(t), before, "open files")
	})
}

// tryOpen opens an address on a host.
func tryOpen(t *testing.T, h *host, address string) (*Device, error) {
	t.Helper()
	a := must.Get(vfio.ParseAddress(address))(t)
	return h.open(context.Background(), a)
}

// mustOpen opens an address and closes it at the end of the test.
func mustOpen(t *testing.T, h *host, address string) *Device {
	t.Helper()
	d := must.Get(tryOpen(t, h, address))(t)
	t.Cleanup(func() { should.OK(t, d.Close()) })
	return d
}

// ready is a NIC opened through one back end of a fake kernel.
func ready(t *testing.T, backend string) (*fake, *Device) {
	t.Helper()
	checkFiles(t)
	tr := machine(t)
	k, h := openFake(t, tr)
	if backend == backendNoIOMMU {
		unguard(tr)
		k.viable[0] = true
	}
	return k, mustOpen(t, h, "pci:"+nic+"?backend="+backend)
}

// unguard makes the machine's NIC one that no IOMMU guards.
func unguard(tr tree) {
	tr.t.Helper()
	tr.remove("dev/vfio/devices")
	tr.remove("dev/vfio/7")
	tr.remove("sys/bus/pci/devices", nic, "iommu_group")
	tr.link("../../../../kernel/iommu_groups/0", "sys/bus/pci/devices", nic, "iommu_group")
	tr.file("vfio-noiommu\n", "sys/kernel/iommu_groups/0/name")
	tr.link("../../../../bus/pci/devices/"+nic, "sys/kernel/iommu_groups/0/devices", nic)
	tr.groupNode("noiommu-0")
}

var backends = []string{backendGroup, backendCdev, backendNoIOMMU}

func forEachBackend(t *testing.T, f func(t *testing.T, k *fake, d *Device)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			f(t, k, d)
		})
	}
}

// alloc returns memory of normal pages.
func alloc(t *testing.T, size uint64) *vfio.Memory {
	t.Helper()
	m := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// says fails the test unless an error's text has all the parts.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	must.Hold(t, err != nil, "no error")
	for _, p := range parts {
		should.Contain(t, err.Error(), p, "is not in: %v", err)
	}
}

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}
