package readahead_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/netmem/internal/readahead"
)

// TestSequences: of several sequences at a time each page but the first two is asked for
// once, before it is read, and never more than the window ahead.
func TestSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(2, 64).Draw(t, "window")
		d := readahead.Detector{Window: window}
		readers := rapid.IntRange(1, 16).Draw(t, "readers")
		next, asked := make([]uint64, readers), map[uint64]bool{}
		for i := range next {
			next[i] = uint64(i) << 32
		}
		for range 500 {
			r := rapid.IntRange(0, readers-1).Draw(t, "reader")
			page := next[r]
			if page-uint64(r)<<32 > 1 && !asked[page] {
				t.Fatalf("page %#x was not asked for", page)
			}
			from, n := d.Read(page)
			for p := from; p < from+uint64(n); p++ {
				if asked[p] || p <= page || p > page+uint64(window) {
					t.Fatalf("page %#x is asked for at page %#x", p, page)
				}
				asked[p] = true
			}
			next[r]++
		}
	})
}

// TestRandom: who jumps about gets nothing ahead.
func TestRandom(t *testing.T) {
	d := readahead.Detector{Window: 32}
	for i := range uint64(1000) {
		if _, n := d.Read(i * 7919 % 100_003); n != 0 {
			t.Fatalf("%d pages ahead", n)
		}
	}
	none := readahead.Detector{}
	for i := range uint64(10) {
		if _, n := none.Read(i); n != 0 {
			t.Fatalf("%d pages ahead without a window", n)
		}
	}
}
