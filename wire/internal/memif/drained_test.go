package memif_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestDrained: a port knows when its peer has taken all frames, or is gone.
func TestDrained(t *testing.T) {
	for _, k := range kinds[:3] {
		leaktest.Check(t)
		a, b := connected(t, k.a, k.b)
		for n := range 12 {
			for i := range n % 4 {
				send(a, pattern(i, 1+n*100))
			}
			if n%4 > 0 && a.Drained() {
				t.Fatalf("%s: %d frames have not been taken", k.name, n%4)
			}
			for range n % 4 {
				receive(b)
			}
			for range 8 {
				b.Receive() // in vain: each ring gives back what was released
			}
			must.Be(t, a.Drained(), true, "%s: %d frames have been taken", k.name, n%4)
		}
		send(a, pattern(0, 50))
		should.OK(t, b.Close())
		waittest.Until(t, "link down", func() bool { return !a.LinkUp() })
		should.Be(t, a.Drained(), true, "%s: there is nobody to take it", k.name)
		should.OK(t, a.Close())
	}
}
