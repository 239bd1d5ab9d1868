package qtest_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestModels identifies the models that drivers are tested on.
func TestModels(t *testing.T) {
	models := []struct {
		name           string
		vendor, device uint16
		bars           [6]uint64 // sizes
		vectors        int
	}{
		{"igb", 0x8086, 0x10c9, [6]uint64{0x20000, 0x20000, 0x20, 0x4000}, 10},
		{"e1000e", 0x8086, 0x10d3, [6]uint64{0x20000, 0x20000, 0x20, 0x4000}, 5},
		{"virtio-net-pci", 0x1af4, 0x1041, [6]uint64{1: 0x1000, 4: 0x4000}, 4},
		{"vmxnet3", 0x15ad, 0x07b0, [6]uint64{0x1000, 0x1000, 0x2000}, 25},
	}
	var names []string
	for _, m := range models {
		names = append(names, m.name)
	}
	machine := qemutest.Start(t, names...)
	for n, want := range models {
		t.Run(want.name, func(t *testing.T) {
			d := open(t, machine, n)
			c, err := vfio.ReadConfig(d)
			if err != nil {
				t.Fatal(err)
			}
			if c.Vendor != want.vendor || c.Device != want.device {
				t.Errorf("it is %04x:%04x, want %04x:%04x", c.Vendor, c.Device, want.vendor, want.device)
			}
			for i, size := range want.bars {
				r, err := d.Region(i)
				if err != nil || r.Size != size {
					t.Errorf("BAR%d: %+v, %v, want %#x bytes", i, r, err, size)
				}
			}
			if irq, err := d.IRQ(vfio.IRQMSIX); err != nil || irq.Count != want.vectors {
				t.Errorf("MSI-X: %+v, %v, want %d vectors", irq, err, want.vectors)
			}
		})
	}
}
