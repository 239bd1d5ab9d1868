package ethernet_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newPool(t testing.TB, c ethernet.PoolConfig) *ethernet.Pool {
	t.Helper()
	p, err := ethernet.NewPool(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
