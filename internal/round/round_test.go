package round_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/round"
)

func TestUp(t *testing.T) {
	for _, c := range [][3]int{{0, 8, 0}, {1, 8, 8}, {8, 8, 8}, {9, 8, 16}, {7, 6, 12}, {5, 1, 5}} {
		should.Be(t, round.Up(c[0], c[1]), c[2], "%d rounded up to whole %d", c[0], c[1])
	}
}
