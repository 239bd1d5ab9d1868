package netmem_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/netmem"
)

func TestStatsDescribed(t *testing.T) {
	statstest.Check(t, netmem.Stats{}, netmem.ServerStats{}, netmem.MapStats{})
}
