package fakepci

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// CheckAtEnd looks at the end of a test at what the function has seen, and closes it.
func (f *Function) CheckAtEnd(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		should.Hold(t, f.Closed(), "the device was not closed")
		l := f.Log()
		for _, s := range l.Strays {
			t.Errorf("stray access: %s", s)
		}
		if l.LeftDMA > 0 && f.UnmapFails == nil && f.ConfigFails == nil || l.LeftVectors > 0 {
			t.Errorf("%d DMA mappings and %d vectors are left", l.LeftDMA, l.LeftVectors)
		}
		_ = f.Close()
	})
}
