package driver_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestDoorbellMarks: on a device that asks for it a store to a mapped doorbell is
// marked, and nothing else is.
func TestDoorbellMarks(t *testing.T) {
	for name, c := range map[string]struct {
		features uint64
		mapped   bool
		marks    byte
	}{
		"marks":            {datasheet.FeatureDoorbellMarks, true, 1},
		"no such feature":  {0, true, 0},
		"trapped doorbell": {datasheet.FeatureDoorbellMarks, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(d *fakeDevice) {
				d.mapBAR2 = c.mapped
				d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(c.features))
				d.set(datasheet.IdentityOffset+datasheet.RegFeaturesHigh, uint32(c.features>>32))
			}, 0, 0)
			bar := r.d.bar2.Bytes()
			if on := bar[datasheet.MarksOn]; on != c.marks {
				t.Errorf("MarksOn is %d, want %d", on, c.marks)
			}
			mark, group := datasheet.MarkOffsets(uint64(r.v.Number()))
			if bar[mark] != 0 || bar[group] != 0 {
				t.Error("marked before there was a doorbell")
			}
			if err := r.v.PostSend(r.descriptors(t, 1)[0]); err != nil {
				t.Fatal(err)
			}
			if bar[mark] != c.marks || bar[group] != c.marks {
				t.Errorf("mark %d, group %d, want %d", bar[mark], bar[group], c.marks)
			}
			marks := 0
			for _, b := range bar[datasheet.MarkBase:][:datasheet.MarkCount] {
				marks += int(b)
			}
			if marks != int(c.marks) {
				t.Errorf("%d marks", marks)
			}
		})
	}
}
