package pager_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/netmem/internal/pager"
)

// TestStreams: of several readers in sequence each misses its first two pages, and then markers
// only: everything else was asked for before, whatever the order they take turns in; and
// nothing is asked for that is further ahead than two windows.
func TestStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(2, 64).Draw(t, "window")
		s := pager.NewStreams(window)
		readers := rapid.IntRange(1, 16).Draw(t, "readers")
		next, local, markers := make([]int64, readers), map[int64]bool{}, map[int64]bool{}
		for i := range next {
			next[i] = int64(i) << 32
		}
		for range 500 {
			r := rapid.IntRange(0, readers-1).Draw(t, "reader")
			page := next[r]
			next[r]++
			if local[page] && !markers[page] {
				continue // it is mapped: no fault
			}
			if page-int64(r)<<32 > 1 && !markers[page] {
				t.Fatalf("page %#x was not asked for", page)
			}
			first, marker, end := s.Missed(page)
			if end > page+1+2*window {
				t.Fatalf("at page %#x pages to %#x are asked for", page, end)
			}
			for p := first; p < end; p++ {
				if p <= page {
					t.Fatalf("page %#x is asked for at page %#x", p, page)
				}
				local[p] = true
			}
			if end > first {
				markers[marker] = true
			}
		}
	})
}

// TestRandomFaults: who jumps about gets nothing ahead.
func TestRandomFaults(t *testing.T) {
	s := pager.NewStreams(32)
	for i := range int64(1000) {
		if first, _, end := s.Missed(i * 7919 % 100_003); end > first {
			t.Fatalf("pages %d to %d", first, end)
		}
	}
	none := pager.NewStreams(0)
	for i := range int64(10) {
		if first, _, end := none.Missed(i); end > first {
			t.Fatalf("pages %d to %d without a window", first, end)
		}
	}
}
