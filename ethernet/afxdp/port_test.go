package afxdp_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/leaktest"
)

// TestExchange: frames of all lengths pass between two ports, each way, in every mode, and
// from buffers of every kind.
func TestExchange(t *testing.T) {
	for _, options := range []string{"", "?mode=native&copy=copy", "?mode=generic"} {
		for _, pool := range []ethernet.PoolConfig{{}, {Size: 4032}, {Size: 1984}, {Headroom: 514, Size: 3000}, {Size: 9216}} {
			for _, interrupts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,%d,%d,%t", options, pool.Headroom, pool.Size, interrupts), func(t *testing.T) {
					leaktest.Check(t)
					a, b := pair(t, 1)
					c := ethernet.Config{Pool: newPool(t, pool), Interrupts: interrupts}
					left, right := open(t, "afxdp:"+a+options, c), open(t, "afxdp:"+b+options, c)
					t.Log(left.Info().Model)
					exchange(t, left.Queue(0), right.Queue(0), 3000, 256)
					exchange(t, right.Queue(0), left.Queue(0), 3000, 256)
				})
			}
		}
	}
}
