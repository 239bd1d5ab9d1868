package conform

import (
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/scripttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRings runs the checks of rings over wires that lose, double, reorder and damage more
// frames than those of via's table of back ends.
func TestRings(t *testing.T) {
	wires := []string{"&loss=0.2&seed=2"}
	if soak.Wanted() {
		wires = append(wires, "&engine=thread&loss=0.2&duplicate=0.1&reorder=0.1&corrupt=0.05&seed=3")
	}
	for _, options := range wires {
		Rings().Run(t, "emulated"+options, func(t *testing.T) (a, b *via.NIC) { return OnMemory(t, options, via.Options{}) })
	}
}

// TestChannels runs the checks of channels over wires that lose nothing, where losses may excuse
// nothing, and over such as lose, double, reorder and damage more frames than those of via's
// table.
func TestChannels(t *testing.T) {
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
		Channels().Run(t, "emulated"+c.options, func(t *testing.T) (a, b *via.NIC) { return OnMemory(t, c.options, via.Options{}) })
		excused := excuses.Load() - before
		should.Hold(t, excused > 0 == c.lossy, "%q: %d times something was excused by losses", c.options, excused)
	}
}

// without is a device that says that it lacks features.
type without struct {
	*emulator.Device
	features uint64
}

func (d without) ReadRegion(index int, offset uint64, p []byte) error {
	err := d.Device.ReadRegion(index, offset, p)
	if at := uint64(datasheet.IdentityOffset + datasheet.RegFeaturesLow); index == 0 && offset == at && len(p) > 0 {
		p[0] &^= byte(d.features)
	}
	return err
}

// TestWithout: on a NIC without a kind of endpoint each check of the kind is skipped, and says
// what the NIC said.
func TestWithout(t *testing.T) {
	for _, s := range []Suite{Rings(), Channels()} {
		for _, c := range s {
			o := c.Run(t.Context(), time.Minute, func(t T) (a, b *via.NIC) {
				x, y, err := emulator.Pair(emulator.PairOptions{})
				OK(t, err)
				return OpenDevice(t, without{x, c.needs.feature}, via.Options{}), OpenDevice(t, y, via.Options{})
			})
			if o.Failed || !o.Skipped || len(o.Messages) != 1 || !strings.Contains(o.Messages[0], "not supported: "+c.needs.name) {
				t.Errorf("%s: %+v", c, o)
			}
		}
	}
}

// TestScripts runs the scripts over two NICs in this process. With -rewrite it makes what they print what is expected.
func TestScripts(t *testing.T) {
	scripttest.Run(t, "scripts", func(t *testing.T) func(words []string) string {
		open := func(t T) (a, b *via.NIC) { return OnMemory(t.(*testing.T), "", via.Options{}) }
		w := &World{T: t, open: open}
		w.A, w.B = open(t)
		return newPlay(w).command
	})
}
