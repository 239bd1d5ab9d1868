package ringtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/conform/ringtest"
	"github.com/trapeze-nic/trapeze/conform/viatest"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLossyWires runs the suite over wires that lose, double, reorder and damage frames: what
// via's table of back ends has is milder.
func TestLossyWires(t *testing.T) {
	for _, options := range []string{"", "&loss=0.2&seed=2", "&engine=thread&loss=0.2&duplicate=0.1&reorder=0.1&corrupt=0.05&seed=3"} {
		ringtest.Run(t, "emulated"+options, func(t *testing.T) (a, b *via.NIC) {
			return viatest.OnMemory(t, options)
		})
	}
}
