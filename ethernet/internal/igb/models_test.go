package igb

import (
	"fmt"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"testing"
)

// TestVectorFields: no two rings of a family share a field of IVAR.
func TestVectorFields(t *testing.T) {
	for _, f := range []family{f82576, f82580, fI350, fI354, fI210, fI211} {
		seen := map[string]bool{}
		for q := range f.queues {
			for _, send := range []bool{false, true} {
				r, s := f.vectorField(q, send)
				at := fmt.Sprint(r, s)
				should.Hold(t, !seen[at] && s%8 == 0 && s <= 24 && r >= 0x1700 && r < 0x1740,
					"%s: queue %d, send %t is at %#x bit %d", f.name, q, send, r, s)
				seen[at] = true
			}
		}
	}
}
