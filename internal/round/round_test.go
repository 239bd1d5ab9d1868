package round_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/round"
)

func TestUp(t *testing.T) {
	for _, c := range [][3]int{{0, 8, 0}, {1, 8, 8}, {8, 8, 8}, {9, 8, 16}, {7, 6, 12}, {5, 1, 5}} {
		if got := round.Up(c[0], c[1]); got != c[2] {
			t.Errorf("%d rounded up to whole %d is %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
