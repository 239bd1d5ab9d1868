package afxdp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// nicsVariable names two interfaces that are up and wired to each other, with commas, on
// which nothing else sends:
//
//	TRAPEZE_TEST_INTERFACES=eth1,eth2 go test -v -run TestNICs ./ethernet/internal/afxdp
const nicsVariable = "TRAPEZE_TEST_INTERFACES"

// TestNICs runs on the NICs of whoever has some: copying, and without a copy where the
// driver can.
func TestNICs(t *testing.T) {
	a, b, ok := strings.Cut(os.Getenv(nicsVariable), ",")
	if !ok {
		t.Skip("there are no NICs to test: name two in " + nicsVariable)
	}
	for _, options := range []string{"?mode=generic", "?mode=native&copy=copy", ""} {
		for _, interrupts := range []bool{false, true} {
			t.Run(options, func(t *testing.T) {
				leaktest.Check(t)
				c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Size: 4032}), Interrupts: interrupts}
				left, right := open(t, "afxdp:"+a+options, c), open(t, "afxdp:"+b+options, c)
				t.Log(left.Info().Model + "; " + right.Info().Model)
				for range 3 {
					for _, p := range []ethernet.Port{left, right} {
						must.Get(ethernet.WaitLink(t.Context(), p))(t)
					}
					settle(t, left.Queue(0), right.Queue(0))
					settle(t, right.Queue(0), left.Queue(0))
					porttest.Exchange(t, left.Queue(0), right.Queue(0), 10_000, 128)
					porttest.Exchange(t, right.Queue(0), left.Queue(0), 10_000, 128)
					for _, p := range []ethernet.Port{left, right} {
						must.OK(t, p.Restart(t.Context()))
					}
				}
			})
		}
	}
}
