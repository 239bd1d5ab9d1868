package sealed_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// TestWindow compares the replay window with a set of all numbers.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w sealed.Window
		taken := map[uint64]bool{}
		next := uint64(0)
		for range rapid.IntRange(1, 400).Draw(t, "numbers") {
			var n uint64
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				n = next
			case 1:
				n = next + rapid.Uint64Range(0, 3*sealed.WindowSize).Draw(t, "ahead")
			default:
				n = next - min(next, rapid.Uint64Range(0, sealed.WindowSize+200).Draw(t, "behind"))
			}
			old := n+sealed.WindowSize < next
			if got, want := w.Take(n), !old && !taken[n]; got != want {
				t.Fatalf("number %d with %d next: %v, want %v", n, next, got, want)
			}
			if !old {
				taken[n] = true
				next = max(next, n+1)
			}
		}
	})
}
