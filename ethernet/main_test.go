package ethernet_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ethernet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
