package channeltest

import (
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestWires runs the suite over wires that lose nothing, where nothing may be excused by
// losses, and over such as lose, double, reorder and damage frames more than those of via's
// table do.
func TestWires(t *testing.T) {
	for _, c := range []struct {
		options string
		lossy   bool
	}{
		{"", false},
		{"&loss=0&corrupt=0", false}, // with checksums
		{"&loss=0.2&seed=2", true},
		{"&engine=thread&loss=0.2&duplicate=0.1&reorder=0.1&corrupt=0.05&seed=3", true},
	} {
		if c.lossy != soak.Wanted() { // via's table has a milder lossy one
			continue
		}
		before := excuses.Load()
		Run(t, "emulated"+c.options, func(t *testing.T) (a, b *via.NIC) {
			return viatest.OnMemory(t, c.options)
		})
		if excused := excuses.Load() - before; excused > 0 != c.lossy {
			t.Errorf("%q: %d times something was excused by losses", c.options, excused)
		}
	}
}

// without is a device that says that it has no channels.
type without struct{ *emulator.Device }

func (d without) ReadRegion(index int, offset uint64, p []byte) error {
	err := d.Device.ReadRegion(index, offset, p)
	if at := uint64(descriptors.IdentityOffset + descriptors.RegFeaturesLow); index == 0 && offset == at && len(p) > 0 {
		p[0] &^= byte(descriptors.FeatureChannel)
	}
	return err
}

// TestWithout: on a NIC without channels each check is skipped, and says what the NIC said.
func TestWithout(t *testing.T) {
	open := func(t viatest.T) (a, b *via.NIC) {
		x, y, err := emulator.Pair()
		viatest.OK(t, err)
		return viatest.OpenDevice(t, without{x}), viatest.OpenDevice(t, y)
	}
	for _, c := range Checks() {
		o := c.Run(t.Context(), time.Minute, open)
		if o.Failed || !o.Skipped || len(o.Messages) != 1 || !strings.Contains(o.Messages[0], "not supported: channels") {
			t.Errorf("%s: %+v", c, o)
		}
	}
}
