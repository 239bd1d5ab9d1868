package netmem_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/leaktest"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestMapInSequence: two readers in sequence, one of whom writes, of more memory than may be
// local, find what they should, most of it read ahead, and what was written is in the source.
func TestMapInSequence(t *testing.T) {
	for _, c := range []struct {
		page, pages, local int
		single             bool
	}{{4 << 10, 3000, 512, false}, {4 << 10, 3000, 512, true}, {16 << 10, 600, 160, false}, {64 << 10, 160, 128, false}} {
		t.Run(fmt.Sprintf("%dK, single %t", c.page>>10, c.single), func(t *testing.T) {
			leaktest.Check(t)
			model := random(c.page*c.pages, 11)
			s := newSource(t, c.page, model)
			s.Single = c.single
			m := open(t, s, netmem.MapOptions{Local: int64(c.page * c.local)})
			memory, half := m.Bytes(), c.page*c.pages/2
			for round := range 2 {
				for at := 0; at < half; at += c.page {
					for _, at := range []int{at, half + at} {
						if !bytes.Equal(memory[at:at+c.page], model[at:at+c.page]) {
							t.Fatalf("round %d, page %d is not what it should be", round, at/c.page)
						}
					}
					if at/c.page%7 == 0 {
						model[at]++
						memory[at]++
					}
				}
			}
			stats, err := m.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if stats.Mapped+stats.Pooled > stats.Limit || stats.Limit > uint64(c.local) {
				t.Errorf("more is local than may be: %+v", stats)
			}
			if stats.Missed > uint64(c.pages) || stats.Ahead < uint64(c.pages) {
				t.Errorf("of two rounds of %d pages %d were missed, %d read ahead", c.pages, stats.Missed, stats.Ahead)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(s.Path); err != nil || !bytes.Equal(got, model) {
				t.Errorf("the source has not what was written: %v", err)
			}
		})
	}
}
