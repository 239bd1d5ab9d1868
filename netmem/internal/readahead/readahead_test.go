package readahead_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/netmem/internal/readahead"
)

// TestSequences: of several readers in sequence each misses its first two pages: everything else
// was advised before, whatever the order they take turns in, and nothing twice; nor is anything
// advised that is further ahead than two windows. So it is whether each page is seen, some of
// them more than once, as by a cache, or those that were missed and markers, as by a pager.
func TestSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(2, 64).Draw(t, "window")
		everyPage := rapid.Bool().Draw(t, "every page is seen")
		d := readahead.Detector{Window: window}
		readers := rapid.IntRange(1, 16).Draw(t, "readers")
		next, advised, markers := make([]uint64, readers), map[uint64]bool{}, map[uint64]bool{}
		for i := range next {
			next[i] = uint64(i) << 32
		}
		see := func(page uint64, missed bool) {
			a := d.Seen(page, missed)
			if a.End > page+1+2*uint64(window) {
				t.Fatalf("at page %#x pages to %#x are advised", page, a.End)
			}
			for p := a.First; p < a.End; p++ {
				if p <= page || advised[p] && p >= a.Marker {
					t.Fatalf("page %#x is advised at page %#x", p, page)
				}
				advised[p] = true
			}
			markers[a.Marker] = a.End > a.First
		}
		for range 500 {
			r := rapid.IntRange(0, readers-1).Draw(t, "reader")
			page := next[r]
			next[r]++
			missed := page-uint64(r)<<32 <= 1
			switch {
			case !missed && !advised[page]:
				t.Fatalf("page %#x was not advised", page)
			case missed || everyPage || markers[page]:
				see(page, missed)
			}
			if everyPage && rapid.Bool().Draw(t, "once more") {
				see(page, false)
			}
		}
	})
}

// TestMissedBeforeMarker: a page that was advised and is missed all the same begins a sequence, so
// that those behind it are advised again.
func TestMissedBeforeMarker(t *testing.T) {
	d := readahead.Detector{Window: 32}
	var last readahead.Advice
	for page := range uint64(20) {
		if a := d.Seen(page, page < 2); a.End > a.First {
			last = a
		}
	}
	if last.Marker < 23 {
		t.Fatalf("%+v leaves no room for two pages before the marker", last)
	}
	must.Be(t, d.Seen(21, true), readahead.Advice{}, "one page that was missed")
	if a := d.Seen(22, true); a.First != 23 || a.End <= a.First {
		t.Errorf("two pages that were missed get %+v", a)
	}
}

// TestRandom: who jumps about gets nothing ahead.
func TestRandom(t *testing.T) {
	d := readahead.Detector{Window: 32}
	for i := range uint64(1000) {
		must.Be(t, d.Seen(i*7919%100_003, true), readahead.Advice{}, "ahead")
	}
	none := readahead.Detector{}
	for i := range uint64(10) {
		must.Be(t, none.Seen(i, true), readahead.Advice{}, "ahead without a window")
	}
}
