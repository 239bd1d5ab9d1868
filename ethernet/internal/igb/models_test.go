package igb

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestModels checks the table of differences against what is written about each family.
func TestModels(t *testing.T) {
	seen := map[uint16]bool{}
	for _, m := range models {
		f := m.family
		switch {
		case seen[m.device]:
			t.Errorf("%04x is there twice", m.device)
		case f.name == "" || f.queues < 1 || f.queues > 16:
			t.Errorf("%s: %+v", m.name, f)
		case m.tested != (m.device == 0x10c9 || m.device == 0x10ca):
			t.Errorf("%s: tested is %t", m.name, m.tested)
		case f.virtual && (f.queues != 1 || f.eerd != 0 || f.offloads()&ethernet.OffloadHash != 0):
			t.Errorf("%s: %+v", m.name, f)
		case f.name != "I211" && !f.virtual && f.eerd == 0:
			t.Errorf("%s has no NVM", m.name)
		}
		seen[m.device] = true
		if got := familyOf(ethernet.Model{Device: m.device}); got != f {
			t.Errorf("%s is taken for %+v", m.name, got)
		}
	}
	for _, want := range []struct {
		f      family
		queues int
		paired bool
		eerd   uint64
	}{
		{f82576, 16, false, 0x14}, {f82580, 8, true, 0x14}, {fI350, 8, true, 0x14},
		{fI354, 8, true, 0x14}, {fI210, 4, true, 0x12014}, {fI211, 2, true, 0},
	} {
		if f := want.f; f.queues != want.queues || f.pairedIVAR != want.paired || f.eerd != want.eerd {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
}

// TestVectorFields compares where the vectors of queues go with the layout of IVAR.
func TestVectorFields(t *testing.T) {
	for _, tt := range []struct {
		f        family
		queue    int
		send     bool
		register uint64
		shift    int
	}{
		{f82576, 0, false, 0x1700, 0}, {f82576, 0, true, 0x1700, 8}, {f82576, 7, true, 0x171c, 8},
		{f82576, 8, false, 0x1700, 16}, {f82576, 15, true, 0x171c, 24},
		{f82580, 0, false, 0x1700, 0}, {f82580, 1, false, 0x1700, 16}, {f82580, 1, true, 0x1700, 24},
		{fI350, 6, true, 0x170c, 8}, {fI210, 3, false, 0x1704, 16}, {fI211, 1, true, 0x1700, 24},
		{virtual, 0, false, 0x1700, 0}, {virtual, 0, true, 0x1700, 8},
	} {
		if r, s := tt.f.vectorField(tt.queue, tt.send); r != tt.register || s != tt.shift {
			t.Errorf("%s queue %d, send %t: %#x bit %d, want %#x bit %d", tt.f.name, tt.queue, tt.send, r, s, tt.register, tt.shift)
		}
	}
	// No two rings of a family share a field.
	for _, f := range []family{f82576, f82580, fI350, fI354, fI210, fI211} {
		seen := map[string]bool{}
		for q := range f.queues {
			for _, send := range []bool{false, true} {
				r, s := f.vectorField(q, send)
				at := fmt.Sprint(r, s)
				if seen[at] || s%8 != 0 || s > 24 || r < 0x1700 || r >= 0x1740 {
					t.Errorf("%s: queue %d, send %t is at %#x bit %d", f.name, q, send, r, s)
				}
				seen[at] = true
			}
		}
	}
}
